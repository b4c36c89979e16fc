"""Runs a forward pass of our model: on this machine, or with ``--start ssh`` on the first host.

    node01: bash -c "source …/set_env.sh && export … && cd …/prove-1a2b3c4d.partial/work/pass
            && exec msrun --worker_num=8 … python -m pcl_reasoner.worker.forward_each …"

The machine of ``pclr-ms`` then needs no device. The host has the environment that training has
there, and sees the folder of the runs under the same path. What runs there ends when this process
ends, in whatever way, or when the connection is lost.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import last_lines
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Progress, StageContext
from pcl_reasoner.hosts.checks import Needs, check_hosts
from pcl_reasoner.hosts.msrun import training_environment
from pcl_reasoner.runner.sources import files_of
from pcl_reasoner.serving.serve_command import free_port
from pcl_reasoner.supervise.connection import SSH, reason_in
from pcl_reasoner.supervise.supervised import Supervised
from pcl_reasoner.train import worker
from pcl_reasoner.train.config import TrainConfig

MSRUN_LOG = "msrun_log"
_NO_CONNECTION = 255
"""Exit code of ``ssh`` if it cannot connect, or the connection is lost."""


def run_forward(
    config: TrainConfig,
    program: str,
    words: list[str],
    folder: Path,
    log: Path,
    total: int,
    policy: Path,
    context: StageContext,
) -> None:
    """Run a program that computes a forward pass.

    Args:
        config: Its layout.
        program: The program's module.
        words: Its arguments; it writes its progress to ``progress.jsonl``.
        folder: Its working directory.
        log: File for its output.
        total: Rows in all.
        policy: The Hugging Face folder that the program reads.
        context: Has the machines, and how processes are started there; receives progress.

    Raises:
        StageError: The process failed, or the host is not fit for it.
    """
    env = training_environment(folder.absolute(), config.devices, config.devices)
    metrics, placement = folder / "progress.jsonl", context.placement
    if context.start == SSH:
        placement = _first_host(placement)
        _check(placement, folder, policy, context)
        line = _line(config, program, words, folder, env, placement)
        _run_there(line, folder, log, metrics, total, context.progress, placement)
        return
    python = worker.interpreter(placement)
    settings = (config.devices, free_port(), MSRUN_LOG)
    command = worker.command(words, *settings, program=program, python=python)
    worker.run_worker(command, folder, log, metrics, total, env, context.progress, placement)


def _line(
    config: TrainConfig,
    program: str,
    words: list[str],
    folder: Path,
    env: Mapping[str, str],
    placement: Placement,
) -> str:
    """Return the host's shell line; its PATH leads to ``python`` and ``msrun``, as in training."""
    settings = (config.devices, placement.master_port, MSRUN_LOG, placement.cluster_time_out)
    command = worker.command(words, *settings, program=program, python="python")
    training = placement.training
    python = training.python or (None if training.container else sys.executable)
    return worker.shell_line(command, folder, env, placement, placement.hosts[0], python)


def _run_there(
    line: str,
    folder: Path,
    log: Path,
    metrics: Path,
    total: int,
    progress: Progress,
    placement: Placement,
) -> None:
    host, mark = placement.hosts[0], str(folder.absolute())
    log.unlink(missing_ok=True)
    with Supervised.on(host, line, placement, log, run=mark) as process:
        code = worker.follow(process, metrics, total, progress)
    if code == _NO_CONNECTION:
        raise StageError(
            f"{host}: the connection was lost: {reason_in(last_lines(log))}. The forward pass "
            f"there ends within notice_seconds = {placement.notice_seconds:g}. Correct it, or put "
            f"another host first in placement.hosts, and give the same command again. Its log is "
            f"{log}."
        )
    worker.refuse_failure(code, log, folder, host)


def _first_host(placement: Placement) -> Placement:
    """Return the launch file's machines with the first host alone."""
    alone = {"hosts": placement.hosts[:1], "host_file": None, "spare_hosts": [], "rollout": None}
    return placement.model_copy(update=alone)


def _check(placement: Placement, folder: Path, policy: Path, context: StageContext) -> None:
    """Raise an error if the host is not fit: its versions, devices, folder or files."""
    files, cache = files_of(policy.absolute()), context.cache or folder / "cache"
    if problems := check_hosts(SSH, Needs(folder, files, 0, cache), placement):
        told = "\n".join(f"  {problem}" for problem in problems)
        raise StageError(
            f"the forward pass runs on {placement.hosts[0]}, the first of placement.hosts, and "
            f"cannot start there:\n{told}\nCorrect it, or put another host first."
        )
