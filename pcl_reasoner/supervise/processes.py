"""Processes of this machine, from /proc: their children, their run, and how they ended.

    /proc/4242/stat                4242 (python) S 4100 …        its state
    /proc/4242/task/4242/children  4250 4251
    /proc/4242/environ             PCL_RUN=1f2e…\0MS_ROLE=MS_WORKER\0…

Uses only the standard library, because the keeper imports it on every host.
"""

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_WAIT_SECONDS = 0.02
SIGNALLED = 128
"""A keeper ends with this exit code plus n if signal n killed its command."""


@dataclass(frozen=True)
class Ended:
    """How a process ended; both fields are None if that cannot be determined."""

    code: int | None
    signal: int | None


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own, in any session or group."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let this process be killed when its parent dies; to be called in the child."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def children_of(process: int) -> list[int]:
    """Children of a process and of all its threads that have not been reaped."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except OSError:  # it has ended meanwhile
            continue
    return found


def descendants(process: int) -> list[int]:
    """Running children of a process, their running children, and so on; parents first."""
    found = [child for child in children_of(process) if _lives(child)]
    for one in found:  # the list grows during the loop
        found += [child for child in children_of(one) if _lives(child)]
    return found


def _lives(process: int) -> bool:
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def name_of(process: int) -> str:
    """The name of a process's program; empty if the process has ended."""
    try:
        return Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def environment_of(process: int) -> dict[str, str]:
    """The environment that a process was started with; empty if it cannot be read."""
    try:
        data = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def with_variable(name: str, value: str) -> list[int]:
    """Running processes, except this one, that were started with this environment variable."""
    everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    found = [one for one in everyone if environment_of(one).get(name) == value]
    return [one for one in found if one != os.getpid() and _lives(one)]


def kill_all(name: str, value: str, keep: int | None = None) -> int:
    """Kill this process's descendants and every process of a run, until none is left.

    Args:
        name: Environment variable that marks the run.
        value: Its value.
        keep: A child that is not reaped, because the caller waits for it.

    Returns:
        Number of killed processes.
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
        reap(keep)
    return len(killed)


def reap(keep: int | None) -> None:
    """Reap adopted children that have ended.

    Args:
        keep: A child that is not reaped, because another part of the program waits for it.
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
    """How a process ended that its parent has not reaped yet."""
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
