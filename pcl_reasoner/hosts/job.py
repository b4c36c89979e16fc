"""The training job on several hosts, and the task for the keeper of each host.

    node02: bash -c "source …/set_env.sh && export … && cd … && exec msrun … --node_rank=1 …"

``local`` runs the commands of all hosts as processes of this machine, to test a launch file.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.hosts.gather import start_folder
from pcl_reasoner.hosts.keeper import Task
from pcl_reasoner.hosts.msrun import host_steps
from pcl_reasoner.supervise.connection import LOCAL, command_on

_PLOG = "ASCEND_PROCESS_LOG_PATH"
_RESTARTS_PROCESSES = "ARF:1"
"""Value in MS_ENABLE_TFT with which MindIO itself restarts lost processes."""
_LOCAL_MASTER = "127.0.0.1"


@dataclass(frozen=True)
class Job:
    """A training job and the hosts that it runs on.

    Args:
        placement: The launch file's settings; ``log_dir`` is relative to ``folder``.
        how: ``local`` or ``ssh``.
        folder: The stage's folder, the same path on all hosts.
        config_file: The MindFormers YAML, relative to ``folder``.
        env: Environment variables; those of the launch file override them.
        metrics: metrics.jsonl, with one line per optimizer step.
        steps: Total number of optimizer steps.
        logs: Folder in which the logs of all starts are kept.
        prepare: Prepares the next start. Returns the step from which training resumes, or None if
            no step is left.
        check: Returns the problems of the hosts, one sentence each; empty when there are none.
        stopped: File that training writes when one of its stop rules ended it; None: no such file.
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


def python_of(placement: Placement, host: str) -> str:
    """Return the host's Python: that of ``per_host``, or else the path of this interpreter."""
    return placement.settings_of(host).python or sys.executable


def module_command(how: str, placement: Placement, host: str, module: str) -> list[str]:
    """Return the local command that runs a module of this package on a host."""
    command = [python_of(placement, host), "-P", "-m", module]
    return command_on(host, command, how, placement.ssh, placement.notice_seconds)


def keeper_command(job: Job, placement: Placement, host: str) -> list[str]:
    """Return the local command that starts a host's keeper."""
    return module_command(job.how, placement, host, "pcl_reasoner.hosts.keeper")


def mark_of(job: Job, host: str) -> str:
    """Return the value that marks the run's processes on a host.

    It is the same for every start and every launcher.
    """
    return hashlib.sha256(f"{job.folder.absolute()} {host}".encode()).hexdigest()[:16]


def task_of(job: Job, placement: Placement, rank: int, number: int) -> Task:
    """Return the task for a host's keeper.

    Args:
        job: The training job.
        placement: The settings of this start; spare hosts may have replaced lost hosts.
        rank: Index of the host.
        number: Number of the start, from 1.
    """
    host = placement.hosts[rank]
    each = placement.devices_per_host
    logs = start_folder(job.logs, rank, number)
    ranks = range(rank * each, (rank + 1) * each)
    workers = [str(job.folder / placement.log_dir / f"worker_{worker}.log") for worker in ranks]
    env = {**placement.env, **placement.settings_of(host).env}
    return Task(
        run=mark_of(job, host),
        command=["bash", "-c", _line(job, placement, rank)],
        notice_seconds=placement.notice_seconds,
        log=str(logs / "msrun.log"),
        worker_logs=workers,
        copies={env[_PLOG]: str(logs / "plog")} if _PLOG in env else {},
        follow_workers=_RESTARTS_PROCESSES not in env.get("MS_ENABLE_TFT", ""),
    )


def _line(job: Job, placement: Placement, rank: int) -> str:
    """Return the host's shell line; its last command replaces the shell (``exec``)."""
    steps = host_steps(
        placement,
        rank,
        job.folder,
        job.config_file,
        python=sys.executable,
        base_env=job.env,
        master=_LOCAL_MASTER if job.how == LOCAL else None,
    )
    if job.how == LOCAL and rank > 0:
        steps.insert(-2, _second_on_this_machine(job))
    return " && ".join([*steps[:-1], f"exec {steps[-1]}"])


def _second_on_this_machine(job: Job) -> str:
    """Return a shell step that keeps a second local host from starting its own scheduler.

    msrun starts a scheduler if the master's address is among those that ``ip`` prints. The step
    puts an ``ip`` that prints no address first in PATH.
    """
    folder = job.folder / "work" / "not_the_master"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "ip"
    program.write_text("#!/bin/sh\necho '[]'\n", encoding="utf-8")
    program.chmod(0o755)
    return f'export PATH="{folder.absolute()}:$PATH"'
