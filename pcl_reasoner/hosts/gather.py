"""Keeps the logs of each host and each launch attempt (``start_1``, ``start_2`` …) of a stage.

logs/train-1a2b3c4d/host_0/start_1/msrun.log        written by the keeper (hosts/keeper.py)
                                   plog/…           copied, if ASCEND_PROCESS_LOG_PATH is set
                                   worker_0.log …   moved from the stage's folder at the end
                                   scheduler.log    moved from the stage's folder
                                   mindformers/rank_0/…     copied from the stage's folder
"""

import shutil
from contextlib import suppress
from pathlib import Path

from pcl_reasoner.core.files import last_lines
from pcl_reasoner.core.schema import Placement

MINDFORMERS = "work/log"
"""Folder of MindFormers' own logs, relative to the stage's folder."""


def start_folder(logs: Path, rank: int, number: int) -> Path:
    """Return the folder for the logs of one host in one launch attempt.

    Args:
        logs: The stage's log folder.
        rank: Index of the host.
        number: Number of the launch attempt, from 1; 0 if a person started the hosts.
    """
    return logs / f"host_{rank}" / f"start_{number}"


def next_start(logs: Path) -> int:
    """Return the number of the next launch attempt: the highest number that has logs, plus 1.

    So launch attempts of earlier commands are counted, too.
    """
    names = (path.name.removeprefix("start_") for path in logs.glob("host_*/start_*"))
    return 1 + max((int(name) for name in names if name.isdigit()), default=0)


def gather(logs: Path, folder: Path, placement: Placement, number: int) -> None:
    """Move the logs of a launch attempt from the stage's folder to the log folder.

    Otherwise the next attempt would overwrite the logs, and the errors in them would look like
    errors of the next attempt. Logs that do not exist are skipped.

    Args:
        logs: The stage's log folder.
        folder: The stage's folder.
        placement: The hosts and settings of this attempt.
        number: Number of the attempt, from 1; 0 if a person started the hosts.
    """
    each, msrun_logs = placement.devices_per_host, folder / placement.log_dir
    for host in range(len(placement.hosts)):
        to = start_folder(logs, host, number)
        if host == 0:
            _take(msrun_logs / "scheduler.log", to / "scheduler.log")
        for rank in range(host * each, (host + 1) * each):
            _take(msrun_logs / f"worker_{rank}.log", to / f"worker_{rank}.log")
            _take(folder / MINDFORMERS / f"rank_{rank}", to / "mindformers" / f"rank_{rank}")


def _take(origin: Path, to: Path) -> None:
    """Move a file, if it exists; copy a folder, because MindFormers continues to write to it."""
    with suppress(OSError, shutil.Error):
        if origin.is_dir():
            shutil.copytree(origin, to, dirs_exist_ok=True)
        elif origin.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(origin, to)


def tail_of(logs: Path, rank: int, number: int) -> str:
    """Return the last lines of a host's first log that is not empty: a worker's, or msrun.log."""
    folder = start_folder(logs, rank, number)
    for file in (*sorted(folder.glob("worker_*.log")), folder / "msrun.log"):
        try:
            lines = last_lines(file)
        except OSError:
            continue
        if lines:
            return f"The last lines of {file}:\n{lines}"
    return ""
