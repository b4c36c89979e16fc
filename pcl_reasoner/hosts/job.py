"""What is trained on several hosts, and what each of them is told.

    node02: bash -c "source …/set_env.sh && export … && cd … && exec msrun … --node_rank=1 …"

``local`` runs the commands of all hosts as processes of this machine, to try a launch file out.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pcl_reasoner.core.schema import HostSettings, Placement
from pcl_reasoner.hosts.gather import start_folder
from pcl_reasoner.hosts.keeper import Task
from pcl_reasoner.hosts.msrun import host_steps
from pcl_reasoner.supervise.connection import LOCAL, command_on

_PLOG = "ASCEND_PROCESS_LOG_PATH"
_RESTARTS_PROCESSES = "ARF:1"
"""In MS_ENABLE_TFT: MindIO starts lost processes again itself."""
_LOCAL_MASTER = "127.0.0.1"


@dataclass(frozen=True)
class Job:
    """What is trained, and where.

    Args:
        placement: The launch file's; ``log_dir`` relative to ``folder``.
        how: ``local`` or ``ssh``.
        folder: The stage's folder, the same on all hosts.
        config_file: The MindFormers YAML, relative to it.
        env: Environment under the launch file's.
        metrics: A line a step.
        steps: Optimizer steps in all.
        logs: Folder for what is kept of the logs.
        prepare: Makes ready for the next start; returns the step that it goes on from, or None
            where no step is left to make.
        check: Names what is wrong with hosts, a sentence each; empty when all is well.
        stopped: A file that training leaves where a rule of its own ended it.
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


def settings_of(placement: Placement, host: str) -> HostSettings:
    """What is different on a host."""
    return placement.per_host.get(host, HostSettings())


def python_of(placement: Placement, host: str) -> str:
    """The host's Python: its own, or the path of this one."""
    return settings_of(placement, host).python or sys.executable


def module_command(how: str, placement: Placement, host: str, module: str) -> list[str]:
    """The command of this machine that runs a module of ours on a host."""
    words = [python_of(placement, host), "-m", module]
    return command_on(host, words, how, placement.ssh, placement.notice_seconds)


def keeper_command(job: Job, placement: Placement, host: str) -> list[str]:
    """The command of this machine that starts a host's keeper."""
    return module_command(job.how, placement, host, "pcl_reasoner.hosts.keeper")


def mark_of(job: Job, host: str) -> str:
    """What marks the run's processes on a host: the same in every start, and by every launcher."""
    return hashlib.sha256(f"{job.folder.absolute()} {host}".encode()).hexdigest()[:16]


def task_of(job: Job, placement: Placement, rank: int, number: int) -> Task:
    """What a host's keeper is told.

    Args:
        job: What is trained.
        placement: Of this start: spare hosts may have taken places.
        rank: Place of the host.
        number: Of the start, from 1.
    """
    host = placement.hosts[rank]
    each = placement.devices_per_host
    logs = start_folder(job.logs, rank, number)
    ranks = range(rank * each, (rank + 1) * each)
    workers = [str(job.folder / placement.log_dir / f"worker_{worker}.log") for worker in ranks]
    env = {**placement.env, **settings_of(placement, host).env}
    return Task(
        run=mark_of(job, host),
        command=["bash", "-c", _line(job, placement, rank)],
        notice_seconds=placement.notice_seconds,
        log=str(logs / "msrun.log"),
        worker_logs=workers,
        disk=str(job.folder),
        copies={env[_PLOG]: str(logs / "plog")} if _PLOG in env else {},
        follow_workers=_RESTARTS_PROCESSES not in env.get("MS_ENABLE_TFT", ""),
    )


def _line(job: Job, placement: Placement, rank: int) -> str:
    """The host's shell line; its last command takes the place of the shell."""
    steps = host_steps(
        placement,
        rank,
        job.folder,
        job.config_file,
        python=sys.executable,
        further=job.env,
        master=_LOCAL_MASTER if job.how == LOCAL else None,
    )
    if job.how == LOCAL and rank > 0:
        steps.insert(-2, _second_on_this_machine(job))
    return " && ".join([*steps[:-1], f"exec {steps[-1]}"])


def _second_on_this_machine(job: Job) -> str:
    """Keep a further host of this machine from starting a scheduler of its own.

    msrun starts one wherever the master's address is among those that ``ip`` prints.
    """
    folder = job.folder / "work" / "not_the_master"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "ip"
    program.write_text("#!/bin/sh\necho '[]'\n", encoding="utf-8")
    program.chmod(0o755)
    return f'export PATH="{folder.absolute()}:$PATH"'
