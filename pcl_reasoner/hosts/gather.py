"""Keeps the logs of all hosts beside the stage's folder.

logs/train-1a2b3c4d/host_0/start_1/msrun.log        written by the keeper
                                   worker_0.log …   moved from the shared folder at the end
                                   scheduler.log
                                   mindformers/rank_0/…
                                   plog/…           by the keeper, with ASCEND_PROCESS_LOG_PATH set
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pcl_reasoner.core.schema import Placement

MINDFORMERS = "work/log"
"""Folder of MindFormers' own logs, relative to the stage's folder."""
_TAIL_LINES = 25


def start_folder(logs: Path, rank: int, number: int) -> Path:
    """Return the folder for one host's logs of one start.

    Args:
        logs: The stage's log folder.
        rank: Index of the host.
        number: Number of the start, from 1.
    """
    return logs / f"host_{rank}" / f"start_{number}"


def next_start(logs: Path) -> int:
    """Return the number of the next start: one above the highest number that has logs.

    Starts by earlier commands count, too.
    """
    names = (path.name.removeprefix("start_") for path in logs.glob("host_*/start_*"))
    return 1 + max((int(name) for name in names if name.isdigit()), default=0)


def gather(logs: Path, folder: Path, placement: Placement, number: int) -> None:
    """Move the logs of a start out of the stage's folder.

    The next start would overwrite them, and would report their errors as its own. Logs that do not
    exist are skipped.

    Args:
        logs: The stage's log folder.
        folder: The stage's folder.
        placement: The settings of this start.
        number: Number of the start.
    """
    each = placement.devices_per_host
    for rank in range(len(placement.hosts)):
        to = start_folder(logs, rank, number)
        ranks = range(rank * each, (rank + 1) * each)
        for origin, name in _wanted(folder, placement.log_dir, ranks):
            if origin.exists() and (rank == 0 or name != "scheduler.log"):
                with suppress(OSError, shutil.Error):
                    to.mkdir(parents=True, exist_ok=True)
                    _take(origin, to / name)


def _wanted(folder: Path, log_dir: str, ranks: range) -> Iterator[tuple[Path, str]]:
    yield folder / log_dir / "scheduler.log", "scheduler.log"
    for rank in ranks:
        yield folder / log_dir / f"worker_{rank}.log", f"worker_{rank}.log"
        yield folder / MINDFORMERS / f"rank_{rank}", f"mindformers/rank_{rank}"


def _take(origin: Path, to: Path) -> None:
    """Move a file; copy a folder, because MindFormers continues to write to it."""
    if origin.is_dir():
        shutil.copytree(origin, to, dirs_exist_ok=True)
    else:
        shutil.move(origin, to)


def tail_of(logs: Path, rank: int, number: int) -> str:
    """Return the last lines of a host's log: of its first non-empty worker log, or of msrun.log."""
    folder = start_folder(logs, rank, number)
    for file in (*sorted(folder.glob("worker_*.log")), folder / "msrun.log"):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        lines = [line for line in text.splitlines() if line.strip()]
        if lines:
            return f"The last lines of {file}:\n" + "\n".join(lines[-_TAIL_LINES:])
    return ""
