"""Processes of this machine by /proc: who is whose child, which belong to a run, how one ended.

    /proc/4242/stat                4242 (python) S 4100 …        its state
    /proc/4242/task/4242/children  4250 4251
    /proc/4242/environ             PCL_RUN=1f2e…\0MS_ROLE=MS_WORKER\0…

Standard library alone: the keeper starts with it on every host.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_WAIT_SECONDS = 0.02


@dataclass(frozen=True)
class Ended:
    """How a process ended; both None where nobody could tell any more."""

    code: int | None
    signal: int | None


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own, wherever it has gone."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """In a child: be killed when its parent is."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def children_of(process: int) -> list[int]:
    """Processes that a process, with all its threads, started and that are not taken leave of."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except OSError:  # it has ended meanwhile
            continue
    return found


def descendants(process: int) -> list[int]:
    """Processes that a process started, and those that they started; parents first."""
    found = [child for child in children_of(process) if _lives(child)]
    for one in found:  # grows on the way
        found += [child for child in children_of(one) if _lives(child)]
    return found


def _lives(process: int) -> bool:
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def name_of(process: int) -> str:
    """The name of a process's program; empty where it has ended."""
    try:
        return Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def environment_of(process: int) -> dict[str, str]:
    """The environment that a process was started with; empty where it cannot be read."""
    try:
        data = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def with_variable(name: str, value: str) -> list[int]:
    """Processes, this one left out, that were started with that environment variable."""
    everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    found = [one for one in everyone if environment_of(one).get(name) == value]
    return [one for one in found if one != os.getpid() and _lives(one)]


def kill_all(name: str, value: str) -> int:
    """Kill this process's descendants and every process of a run, until there are none.

    Args:
        name: Environment variable that marks the run.
        value: Its value.

    Returns:
        How many were killed.
    """
    killed: set[int] = set()
    own = os.getpid()
    while living := {*descendants(own), *with_variable(name, value)}:
        for process in living:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        killed |= living
        time.sleep(_WAIT_SECONDS)
        reap(None)
    return len(killed)


def reap(keep: int | None) -> None:
    """Take leave of adopted children that have ended.

    Args:
        keep: A child whose end another part of the program waits for.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid == keep:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)
        except ChildProcessError:
            return


def how_it_ended(process: int) -> Ended:
    """How a process ended that its parent has not taken leave of yet."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return Ended(None, None)
    if fields[0] not in "ZX":
        return Ended(None, None)
    status = int(fields[-1])
    if os.WIFSIGNALED(status):
        return Ended(None, os.WTERMSIG(status))
    return Ended(os.WEXITSTATUS(status), None)
