"""Lines through pipes: the checker's messages, and what a child says to the checker."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pcl_reasoner.sandbox_program.messages import dumps, loads
    from pcl_reasoner.sandbox_program.processes import end_others

CHUNK = 1 << 16


class Lines:
    """The complete lines that arrive at a file descriptor."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.rest = bytearray()
        self.bytes = 0
        """Bytes that were read."""

    def read(self) -> list[bytes] | None:
        """Read what is there; return the complete lines, or None at the end."""
        data = os.read(self.handle, CHUNK)
        if not data:
            return None
        self.bytes += len(data)
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            self.rest += data
            return []
        lines = bytes(self.rest + head).split(b"\n")
        self.rest = bytearray(tail)
        return lines


def write_all(handle: int, data: bytes) -> None:
    """Write all bytes."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def send(message: dict[str, Any]) -> None:
    """Send a message to the checker."""
    write_all(1, dumps(message) + b"\n")


class Messages:
    """The checker's messages, which arrive on standard input."""

    def __init__(self) -> None:
        self.lines = Lines(0)
        self.waiting: list[dict[str, Any]] = []
        """Messages that have arrived and were not asked for yet."""

    def next(self) -> dict[str, Any]:
        """Wait for the next message; end the sandbox when there will be none."""
        while not self.waiting:
            self.waiting += self.arrived()
        return self.waiting.pop(0)

    def arrived(self) -> list[dict[str, Any]]:
        """Read what is there; end the sandbox when the checker has ended."""
        found = self.lines.read()
        if found is None:
            end_others()
            os._exit(0)
        return [loads(line) for line in found]
