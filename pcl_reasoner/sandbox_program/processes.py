"""The first process of a sandbox and the others: it hides from them, limits them and ends them."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SET_DUMPABLE, SET_CHILD_SUBREAPER = 4, 36
"""Numbers of prctl's operations."""


def prctl(operation: int, value: int) -> None:
    """Call prctl; end the process if that fails."""
    try:
        # The package ctypes takes a quarter of the interpreter's start to import.
        import _ctypes

        function = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        failed = _ctypes.call_function(function, (operation, value, 0, 0, 0))
    except (ImportError, AttributeError, TypeError):
        import ctypes

        failed = ctypes.CDLL(None).prctl(operation, value, 0, 0, 0)
    if failed:
        os._exit(1)


def guard_first_process() -> None:
    """Make this process one that candidates cannot read, write or interrupt."""
    # Not dumpable: nobody of its user can read or write its memory.
    prctl(SET_DUMPABLE, 0)
    # Process 1 gets only the signals that it handles, and Python handles this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getpid() != 1:
        # Without a namespace of processes, a process whose parent ends would leave this sandbox.
        prctl(SET_CHILD_SUBREAPER, 1)


def limit_all(limits: dict[str, Any]) -> None:
    """Set the limits that all processes share; this process needs little."""
    values = {
        resource.RLIMIT_FSIZE: limits["disk_megabytes"] << 20,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: limits["processes"],
    }
    for kind, value in values.items():
        lower(kind, value)


def lower(kind: int, value: int) -> None:
    """Lower a limit of this process and its children for ever."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def end_others() -> None:
    """Kill all other processes of the sandbox, and wait until they have ended."""
    alone = os.getpid() == 1
    while True:
        try:
            if alone:
                os.kill(-1, signal.SIGKILL)
            else:
                kill_children()
        except ProcessLookupError:
            pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def kill_children() -> None:
    """Kill the child processes; their own children are then this process's."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as children:
        for child in children.read().split():
            os.kill(int(child), signal.SIGKILL)
