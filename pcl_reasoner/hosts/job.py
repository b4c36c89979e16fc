"""The training job on several hosts, and the task for each host's keeper (hosts/keeper.py).

    node02: bash -c "source …/set_env.sh && export … && cd … && exec msrun … --node_rank=1 …"

With ``--start local``, the commands of all hosts run on this machine, to test a launch file.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.hosts.gather import start_folder
from pcl_reasoner.hosts.keeper import Task
from pcl_reasoner.hosts.msrun import host_steps, training_line
from pcl_reasoner.supervise.connection import LOCAL, command_on
from pcl_reasoner.supervise.environment import package_python
from pcl_reasoner.supervise.supervised import STOP_SECONDS

_PLOG = "ASCEND_PROCESS_LOG_PATH"
_RESTARTS_PROCESSES = "ARF:1"
"""Value in MS_ENABLE_TFT with which MindIO itself restarts lost processes."""
_LOCAL_MASTER = "127.0.0.1"


@dataclass(frozen=True)
class Job:
    """A training job and the hosts that it runs on.

    Args:
        placement: The launch file's settings; ``log_dir`` is relative to ``folder``.
        how: The value of ``--start``: ``local`` or ``ssh``.
        folder: The stage's folder; all hosts see it under the same path.
        config_file: The MindFormers YAML, relative to ``folder``.
        env: Environment variables; those of the launch file override them.
        metrics: metrics.jsonl, with one line per optimizer step.
        steps: Total number of optimizer steps.
        logs: Folder in which the logs of all launch attempts are kept.
        prepare: Prepares the next launch attempt. Returns the step from which training resumes, or
            None if no step is left.
        check: Returns the problems of the hosts, one sentence each; empty when there are none.
        stopped: File with the reason why a stop rule ended training; None: there is no such file.
    """

    placement: Placement
    how: str
    folder: Path
    config_file: str
    env: Mapping[str, str]
    metrics: Path
    steps: int
    logs: Path
    prepare: Callable[[], int | None]
    check: Callable[[Placement], list[str]] = field(default=lambda _: [])
    stopped: Path | None = None


def module_command(how: str, placement: Placement, host: str, module: str) -> list[str]:
    """Return the local command that runs a module of this package on a host."""
    python = package_python(placement, host)
    return command_on(
        host, [python, "-P", "-m", module], how, placement.ssh, placement.notice_seconds
    )


def keeper_command(job: Job, placement: Placement, host: str) -> list[str]:
    """Return the local command that starts a host's keeper."""
    return module_command(job.how, placement, host, "pcl_reasoner.hosts.keeper")


def mark_of(job: Job, host: str) -> str:
    """Return the value of the variable PCL_RUN, which marks the run's processes on a host.

    All launchers and all launch attempts of this run use the same value.
    """
    return hashlib.sha256(f"{job.folder.absolute()} {host}".encode()).hexdigest()[:16]


def task_of(job: Job, placement: Placement, rank: int, number: int) -> Task:
    """Return the task for a host's keeper.

    Args:
        job: The training job.
        placement: The settings of this attempt; spare hosts may have replaced lost hosts.
        rank: Index of the host.
        number: Number of the launch attempt, from 1.
    """
    host = placement.hosts[rank]
    each = placement.devices_per_host
    logs = start_folder(job.logs, rank, number)
    ranks = range(rank * each, (rank + 1) * each)
    workers = [str(job.folder / placement.log_dir / f"worker_{worker}.log") for worker in ranks]
    training = placement.training
    env = {**placement.env, **placement.settings_of(host).env, **training.environment}
    return Task(
        run=mark_of(job, host),
        command=["bash", "-c", _line(job, placement, rank)],
        notice_seconds=placement.notice_seconds,
        # A container must be stopped; processes of the host are killed at once.
        stop_seconds=STOP_SECONDS if training.container else 0.0,
        log=str(logs / "msrun.log"),
        worker_logs=workers,
        copies={env[_PLOG]: str(logs / "plog")} if _PLOG in env else {},
        follow_workers=_RESTARTS_PROCESSES not in env.get("MS_ENABLE_TFT", ""),
    )


def _line(job: Job, placement: Placement, rank: int) -> str:
    """Return the host's shell line; its last command replaces the shell (``exec``)."""
    job_files, python = (job.folder, job.config_file), sys.executable
    master = _LOCAL_MASTER if job.how == LOCAL else None
    steps = host_steps(placement, rank, *job_files, python, job.env, master)
    if job.how == LOCAL and rank > 0:
        steps.insert(-2, _second_on_this_machine(job))
    return training_line(placement, " && ".join([*steps[:-1], f"exec {steps[-1]}"]))


def _second_on_this_machine(job: Job) -> str:
    """Return a shell step with which msrun starts no scheduler, for local hosts after the first.

    msrun starts a scheduler if the program ``ip`` prints the master's address. The step changes
    PATH, so that msrun finds another program ``ip``, which prints no address.
    """
    folder = job.folder / "work" / "not_the_master"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "ip"
    program.write_text("#!/bin/sh\necho '[]'\n", encoding="utf-8")
    program.chmod(0o755)
    return f'export PATH="{folder.absolute()}:$PATH"'
