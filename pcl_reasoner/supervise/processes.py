"""Finds, kills and reaps processes of this machine, by means of the files in /proc.

    /proc/4242/stat                4242 (python) S 4100 …        S: its state
    /proc/4242/task/4242/children  4250 4251
    /proc/4242/environ             PCL_RUN=1f2e… MS_ROLE=MS_WORKER …   separated by null bytes

This module uses only the standard library, because the keeper imports it on every host.
"""

import ctypes
import os
import signal
import time
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_WAIT_SECONDS = 0.02
RUN = "PCL_RUN"
"""Environment variable that marks every process of a run on a host."""
SIGNALLED = 128
"""A keeper's exit code is this number plus n if signal n killed its command."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends, in any session or process group."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let this process be killed when its parent dies; to be called in the child."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def children_of(process: int) -> list[int]:
    """Return the children that a process and its threads started and that are not reaped yet."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except OSError:  # the process has ended meanwhile
            continue
    return found


def descendants(process: int) -> list[int]:
    """Return the running descendants of a process; parents are before their children."""
    found = [child for child in children_of(process) if _lives(child)]
    for one in found:  # the list grows during the loop
        found += [child for child in children_of(one) if _lives(child)]
    return found


def _stat(process: int) -> list[str]:
    """Return the fields of /proc/N/stat, the state first; ``["X"]`` (dead) without such a file."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X"]


def _lives(process: int) -> bool:
    return _stat(process)[0] not in "ZX"


def name_of(process: int) -> str:
    """Return the name of a process's program; empty if the process has ended."""
    try:
        return Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def environment_of(process: int) -> dict[str, str]:
    """Return the environment that a process was started with; empty if it cannot be read."""
    try:
        data = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _processes_of(run: str) -> list[int]:
    """Find the running processes, except this one, whose variable PCL_RUN has the value ``run``."""
    everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    found = [one for one in everyone if environment_of(one).get(RUN) == run]
    return [one for one in found if one != os.getpid() and _lives(one)]


def kill_all(run: str, keep: int | None = None) -> int:
    """Kill this process's descendants and every process of a run, until none is left.

    Args:
        run: The run's mark: the value of PCL_RUN in the environment of its processes.
        keep: A child that is not reaped, because the caller waits for it.

    Returns:
        Number of killed processes.
    """
    killed: set[int] = set()
    own = os.getpid()
    while living := {*descendants(own), *_processes_of(run)}:
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


def how_it_ended(process: int) -> tuple[int | None, int | None]:
    """Find out how a process ended, before its parent reaps it.

    Returns:
        Its exit code, and the signal that killed it. One of them is None; both are None if the end
        is unknown.
    """
    state, *fields = _stat(process)
    if state not in "ZX" or not fields:
        return None, None
    status = int(fields[-1])
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None
