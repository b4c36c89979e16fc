"""Starts and watches the training process, and finds its last complete checkpoint."""

import errno
import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import last_lines
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.hosts.msrun import msrun_arguments, training_line
from pcl_reasoner.supervise.environment import environment_steps, sourced_files
from pcl_reasoner.supervise.supervised import STOP_SECONDS, Supervised
from pcl_reasoner.weights.conversion import write_mindformers
from pcl_reasoner.weights.seals import SUFFIX, changed_files
from pcl_reasoner.weights.slices import rank_files
from pcl_reasoner.weights.stream import is_complete

POLL_SECONDS = 0.5
_STOP_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL when the process and its children are ended."""
DIE_WITH_PARENT = "PCL_DIE_WITH_PARENT"
"""Environment variable: if it is set, a training process is killed when its parent dies. Workers on
several devices need this, because their parent is msrun, not the runner."""
QUIET = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "GLOG_v": "3", DIE_WITH_PARENT: "1"}
"""Environment variables of every training process: offline, quiet logs, no process left behind."""


def newest_checkpoint(output_dir: Path) -> Path | None:
    """Return rank 0's newest checkpoint that is complete on every rank; None if there is none.

    A checkpoint that a killed run left truncated is skipped.

    Args:
        output_dir: MindFormers' output folder.
    """
    return rank_files(output_dir / "checkpoint").get(0)


def step_of(checkpoint: Path) -> int:
    """Read the number of optimizer steps that a checkpoint was trained for."""
    from safetensors import safe_open

    with safe_open(checkpoint, framework="np") as opened:
        return int(opened.get_tensor("step_num"))


def saved_bytes(stage: Path) -> int:
    """Return the bytes of the checkpoints in an unfinished stage; later ones take their place."""
    saved = stage.glob("work/checkpoint/rank_*/*.safetensors")
    return sum(file.stat().st_size for file in saved)


def remove_broken_checkpoints(output_dir: Path, warn: Callable[[str], None]) -> None:
    """Delete truncated checkpoints, and damaged ones from the newest on, so that no run uses them.

    Args:
        output_dir: MindFormers' output folder.
        warn: Called with a message for each damaged checkpoint. One that is only truncated was
            being written when its run was killed.
    """
    for path in (output_dir / "checkpoint").glob("rank_*/*.safetensors"):
        if not is_complete(path):
            _remove(path)
    while changed := changed_files(rank_files(output_dir / "checkpoint").values()):
        warn(
            f"{changed[0]}: damaged after it had been written. Training resumes from an earlier "
            "checkpoint, or from the start if there is none. Check the disk."
        )
        for path in changed:
            _remove(path)


def _remove(checkpoint: Path) -> None:
    checkpoint.chmod(0o644)
    checkpoint.unlink()
    checkpoint.with_suffix(SUFFIX).unlink(missing_ok=True)


def starting_point(
    policy: Path, work: Path, ranks: int, resume: Path | None, whole: bool
) -> dict[str, str]:
    """Prepare the files that training starts from, in the layout that MindFormers needs.

    A single process can load a Hugging Face folder, or a checkpoint file that is not in the folder
    of a rank. Several processes load one folder per rank; they can load a Hugging Face folder only
    if MindFormers cuts the weights into slices.

    Args:
        policy: The Hugging Face folder.
        work: MindFormers' output folder.
        ranks: Number of processes.
        resume: Rank 0's checkpoint to resume from; None: training starts from the policy.
        whole: True if every rank holds all weights.

    Returns:
        Entries of ``render``'s paths: ``start``, relative to the parent folder of ``work``, and
        ``resume``, a file name. Empty if the policy's own folder is loaded.
    """
    if resume is not None and ranks > 1:
        return {"start": f"{work.name}/checkpoint", "resume": resume.name}
    if resume is not None:
        place = work / "resume" / resume.name
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        os.link(resume, place)
        return {"start": f"{work.name}/resume/{resume.name}", "resume": resume.name}
    if ranks == 1 or not whole:
        return {}
    for rank in range(ranks):
        place = work / "start" / f"rank_{rank}" / "policy.safetensors"
        place.parent.mkdir(parents=True, exist_ok=True)
        if rank == 0:
            write_mindformers(policy, place)
        else:
            place.unlink(missing_ok=True)
            os.link(work / "start" / "rank_0" / place.name, place)
    return {"start": f"{work.name}/start"}


def command(
    words: list[str],
    devices: int,
    port: int,
    log_dir: str,
    seconds: int = 300,
    program: str = "pcl_reasoner.worker",
    python: str = sys.executable,
) -> list[str]:
    """Return the command of a program on this machine: one process, or msrun for several.

    Args:
        words: The program's arguments; for training, the MindFormers YAML.
        devices: Number of ranks.
        port: Port of msrun.
        log_dir: Folder in which msrun writes worker_N.log.
        seconds: Time limit for all ranks to join.
        program: The module to run.
        python: The interpreter; ``msrun`` is beside it.
    """
    entry = ["-m", program, *words]
    if devices == 1:
        return [python, *entry]
    msrun = Path(python).with_name("msrun")
    options = msrun_arguments(devices, devices, 0, "127.0.0.1", port, log_dir, seconds)
    return [str(msrun), *options, "python", *entry]


def interpreter(placement: Placement) -> str:
    """Return the Python of training on this machine, as its launch file has it."""
    training = placement.training
    return training.python or ("python" if training.container else sys.executable)


def in_environment(
    arguments: list[str], folder: Path, env: Mapping[str, str], placement: Placement
) -> list[str]:
    """Return a command in training's own environment: as it is, in a shell, or in a container.

    Args:
        arguments: The command, from `command`.
        folder: Its working directory.
        env: Environment variables; the launch file's override them.
        placement: Has the shell files, the variables and the container.
    """
    training = placement.training
    if not training.container and not sourced_files(placement, "", training):
        return arguments
    python = None if arguments[0] in ("python", "msrun") else arguments[0]
    return ["bash", "-c", shell_line(arguments, folder, env, placement, "", python)]


def shell_line(
    arguments: list[str],
    folder: Path,
    env: Mapping[str, str],
    placement: Placement,
    host: str,
    python: str | None,
) -> str:
    """Return the shell line that runs a command in a host's environment of training.

    Args:
        arguments: The command.
        folder: Its working directory.
        env: Environment variables; the launch file's override them.
        placement: Has the shell files, the variables and the container.
        host: One of its hosts; empty to ignore ``per_host``.
        python: Interpreter for PATH if ``per_host`` has none; None: PATH is then not changed.
    """
    training = placement.training
    steps = environment_steps(placement, host, python, {**QUIET, **env}, training)
    steps += [f"cd {shlex.quote(str(folder.absolute()))}", f"exec {shlex.join(arguments)}"]
    return training_line(placement, " && ".join(steps))


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return a training process's environment: offline, this Python first in PATH, quiet logs."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, **QUIET, **extra}


def run_worker(
    arguments: list[str],
    folder: Path,
    log: Path,
    metrics: Path,
    steps: int,
    env: Mapping[str, str],
    progress: Progress,
    placement: Placement = Placement(),  # noqa: B008
) -> None:
    """Run the training process to its end.

    Args:
        arguments: The command with its arguments.
        folder: The working directory of the process; paths in the YAML are relative to it.
        log: File for its output.
        metrics: The file that gets one line per step; its last line gives the progress.
        steps: Optimizer steps in all.
        env: Additional environment variables.
        progress: Where progress is reported.
        placement: Has the launch file's part of the environment, which overrides ``env``.

    Raises:
        StageError: The process failed; the message has the last lines of its log.
        OSError: The disk is full or fails.
    """
    log.unlink(missing_ok=True)
    mark, limit = str(folder.absolute()), _STOP_SECONDS
    own = {**env, **placement.env, **placement.training.environment}
    arguments = in_environment(arguments, folder, env, placement)
    if placement.training.container:
        limit = STOP_SECONDS
    with Supervised.here(arguments, log, folder, environment(own), mark, limit) as training:
        code = follow(training, metrics, steps, progress)
    refuse_failure(code, log, folder)


def follow(process: Supervised, metrics: Path, steps: int, progress: Progress) -> int:
    """Report a training process's progress until it ends, and return its exit code.

    Args:
        process: The running process.
        metrics: The file that gets one line per step.
        steps: Optimizer steps in all.
        progress: Where progress is reported.
    """
    while (code := process.poll()) is None:
        time.sleep(POLL_SECONDS)
        step, note = _last_step(metrics)
        progress.update(step, steps, "steps", note)
    return code


def refuse_failure(code: int, log: Path, folder: Path, host: str | None = None) -> None:
    """Raise an error if a training process has failed.

    Args:
        code: Its exit code.
        log: The file with its output.
        folder: Its working directory.
        host: The host that it ran on; None: this machine.

    Raises:
        StageError: It has failed; the message has the last lines of its log.
        OSError: The disk is full or fails.
    """
    if code == 0:
        return
    for number in (errno.ENOSPC, errno.EIO):
        if os.strerror(number) in last_lines(log):
            raise OSError(number, os.strerror(number), str(folder))
    where = f"{host}: " if host else ""
    raise StageError(
        f"{where}the MindFormers process {_end(code)}. Its log is {log}; "
        f"the last lines:\n{last_lines(log)}"
    )


def _end(code: int) -> str:
    """Describe how the process ended, for an error message."""
    if code >= 0:
        return f"ended with exit code {code}"
    cause = ", e.g. because memory ran out" if code == -signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-code).name}{cause}"


def _last_step(metrics: Path) -> tuple[int, str]:
    """Return the number of steps written so far, and a note with the last loss."""
    try:
        lines = metrics.read_bytes().rsplit(b"\n", 2)
        record: dict[str, Any] = json.loads(lines[-2])
    except (OSError, IndexError, ValueError):
        return 0, "importing and compiling"
    return int(record["step"]), f"loss {record['loss']:.4f}"


def remove_tree(path: Path) -> None:
    """Delete a folder whose files MindFormers made read-only."""

    def make_writable(function: Any, name: str, _: Any) -> None:
        Path(name).chmod(0o700)
        function(name)

    if path.exists():
        shutil.rmtree(path, onerror=make_writable)
