"""The memory of all processes in a sandbox together, where no control group limits it.

A limit of every process is not enough: 24 processes of 512 MiB each are 12 GiB. So the processes
are looked at every 20 ms, and a sandbox that is over its limit is killed. Between two looks it can
take more.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol

PAGE = os.sysconf("SC_PAGE_SIZE")
LOOK_SECONDS = 0.02
"""Seconds between two looks at the memory."""


class Watched(Protocol):
    """A sandbox whose memory is looked at."""

    alive: bool

    def check_memory(self) -> None:
        """Kill the sandbox if its processes have more memory than they may."""


class MemoryWatch:
    """Looks at the sandboxes of one response, whichever of them the checker waits for."""

    def __init__(self) -> None:
        self.sandboxes: list[Watched] = []
        self.wait()

    def wait(self) -> None:
        """Let some time pass before the next look: nothing that is not trusted has run lately."""
        self._next = time.monotonic() + LOOK_SECONDS

    def look(self) -> None:
        """Check all sandboxes, if the last look is long enough ago."""
        if time.monotonic() < self._next:
            return
        for sandbox in self.sandboxes:
            if sandbox.alive:
                sandbox.check_memory()
        self.wait()


def private_bytes(first: int) -> int:
    """Return the bytes of memory that the tests' processes in a sandbox have for themselves.

    The sandbox's first process is trusted and does not count. Pages that a fork shares with its
    parent count for each of them; what the first process has is taken off, as every fork begins
    with it.

    Args:
        first: The sandbox's first process; the others descend from it.
    """
    base = _private(first)
    return sum(max(_private(other) - base, 0) for other in descendants(first))


def descendants(process: int) -> list[int]:
    """Return the ids of all processes that descend from one."""
    found: list[int] = []
    waiting = [process]
    while waiting:
        next_ones = children(waiting.pop())
        found += next_ones
        waiting += next_ones
    return found


def children(process: int) -> list[int]:
    """Return the ids of a process's children."""
    if not _kernel_lists_children():
        return [other for other, parent in _parents().items() if parent == process]
    found: list[int] = []
    with suppress(OSError):  # it has ended meanwhile
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


@cache
def _kernel_lists_children() -> bool:
    """Whether the kernel was built with CONFIG_PROC_CHILDREN."""
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _parents() -> dict[int, int]:
    """Return process -> its parent, of all processes."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # After the name, which may have blanks and parentheses: state and parent.
            words = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            found[int(file.parent.name)] = int(words[1])
    return found


def _private(process: int) -> int:
    try:
        words = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return (int(words[1]) - int(words[2])) * PAGE
