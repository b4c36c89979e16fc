"""One run of a child process in a sandbox: its pipes, its time, and what came out of it."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pcl_reasoner.sandbox_program.child import run_child
    from pcl_reasoner.sandbox_program.pipes import CHUNK, Lines, Messages, send

STRETCH = 5.0
"""Times its limit that a test may take at most, while it waits for a processor."""
ERROR_BYTES = 2000
"""Bytes of a child's standard error, from its end, that are reported."""


class ChildRun:
    """One child process, its pipes, and what came out of them.

    Args:
        program: The candidate's or the tests' code, and the limits.
        code: The compiled code, if it is Python and can be compiled.
        messages: The checker's messages.
        start: The message that starts the child.
    """

    def __init__(
        self, program: dict[str, Any], code: Any, messages: Messages, start: dict[str, Any]
    ) -> None:
        self.program, self.code, self.messages = program, code, messages
        self.start = start
        self.limit: str | None = None
        self.stopped = False
        self.written = 0
        """Bytes that the child has written, to all its pipes together."""
        self.allowed: int = start.get("output_bytes", program["limits"]["output_bytes"])
        """Bytes that it may write; more with every line of the checker, which it may return."""
        self.kept: dict[int, bytearray] = {}
        """Output and error: file descriptor -> what was read from it."""
        self.pending: dict[int, memoryview] = {}
        """Input and channel: file descriptor -> what is still to be written to it."""
        self.lines: Lines | None = None
        """The child's lines, if it talks to the checker."""
        self.replies = 0
        """Lines that the child has written; ``replies`` of the start is where it is stopped."""

    def run(self) -> dict[str, Any]:
        """Run the child to its end; return how it ended."""
        began = time.monotonic()
        self.fork()
        # What came together with the message that starts this test.
        waiting, self.messages.waiting = self.messages.waiting, []
        self.handle([*({"line": line} for line in self.start.get("lines", [])), *waiting])
        self.watch(began)
        return self.end(time.monotonic() - began)

    def fork(self) -> None:
        """Start the child with standard input, output and error, and a channel if it talks."""
        given, taken = os.pipe()
        self.out, out = os.pipe()
        self.error, error = os.pipe()
        of_child = [given, out, error]
        if self.start["start"] in ("calls", "tester", "shared"):
            channel_in, self.channel = os.pipe()
            answers, channel_out = os.pipe()
            of_child += [channel_in, channel_out]
            self.lines = Lines(answers)
            self.pending[self.channel] = memoryview(b"")
        self.child = os.fork()
        if self.child == 0:
            run_child(self.program, self.code, self.start, of_child)
        for handle in of_child:
            os.close(handle)
        self.kept = {self.out: bytearray(), self.error: bytearray()}
        stdin = self.start.get("stdin", "").encode("utf-8", "surrogatepass")
        self.pending[taken] = memoryview(stdin)
        self.input = taken
        for handle in self.pending:
            os.set_blocking(handle, False)
        self.write(taken)

    def watch(self, began: float) -> None:
        """Move bytes until the child ends, a limit is reached, or the checker stops the child.

        Seconds for which it waited for a processor do not count: on a busy machine it gets as many
        more, up to STRETCH times its limit.
        """
        seconds = self.start["seconds"]
        deadline = began + seconds
        process = os.pidfd_open(self.child)
        self.sources = [0, process, *self.kept, *([self.lines.handle] if self.lines else [])]
        try:
            while self.limit is None and not self.stopped:
                left = deadline - time.monotonic()
                if left <= 0:
                    longer = began + min(seconds + self.waited(), STRETCH * seconds)
                    if longer <= time.monotonic():
                        self.limit = "time"
                        return
                    deadline = longer
                    continue
                full = [handle for handle, data in self.pending.items() if data]
                readable, writable, _ = select.select(self.sources, full, [], left)
                for handle in writable:
                    self.write(handle)
                for handle in readable:
                    if handle != process:
                        self.read(handle)
                # A grandchild may hold the pipes open; it is the child's own end that counts.
                if process in readable:
                    self.drain()
                    return
        finally:
            os.close(process)

    def write(self, handle: int) -> None:
        """Write as much as the child's pipe takes; close its standard input after the last byte."""
        data = self.pending[handle]
        try:
            self.pending[handle] = data[os.write(handle, data) :] if data else data
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.pending[handle] = memoryview(b"")
        if handle == self.input and not self.pending[handle]:
            os.close(handle)
            del self.pending[handle]

    def read(self, handle: int) -> None:
        """Read what has arrived at a file descriptor."""
        if handle == 0:
            self.obey()
        elif self.lines is not None and handle == self.lines.handle:
            self.forward(self.lines)
        else:
            data = os.read(handle, CHUNK)
            self.kept[handle] += data
            self.count(handle, len(data))

    def drain(self) -> None:
        """Read what the child wrote before it ended."""
        handles = self.sources[2:]
        while self.limit is None:
            readable = select.select(handles, [], [], 0)[0] if handles else []
            if not readable:
                return
            for handle in readable:
                self.read(handle)
            handles = [handle for handle in handles if handle in self.sources]

    def count(self, handle: int, size: int) -> None:
        """Count what the child wrote. Too much reaches the limit; nothing is the pipe's end."""
        self.written += size
        if not size:
            self.sources.remove(handle)
        if self.written > self.allowed:
            self.limit = "output"

    def forward(self, lines: Lines) -> None:
        """Send the child's lines to the checker."""
        before = lines.bytes
        for line in lines.read() or []:
            send({"line": line.decode("utf-8", "replace")})
            self.replies += 1
            self.stopped = self.stopped or self.replies == self.start.get("replies")
        self.count(lines.handle, lines.bytes - before)

    def obey(self) -> None:
        """Read the checker's messages."""
        self.handle(self.messages.arrived())

    def handle(self, messages: Iterable[dict[str, Any]]) -> None:
        """Do what the checker's messages say."""
        for message in messages:
            if "line" in message and self.lines is not None:
                line = message["line"].encode() + b"\n"
                self.allowed += 2 * len(line)
                self.pending[self.channel] = memoryview(bytes(self.pending[self.channel]) + line)
            elif "stop" in message:
                self.stopped = True
            elif "start" in message:
                self.messages.waiting.append(message)

    def waited(self) -> float:
        """Return for how long the child could have run while others had its processor.

        Of several threads the one counts that waited longest: others may wait for it. The kernel
        counts this if it is built so (CONFIG_SCHED_INFO); elsewhere it is 0.
        """
        folder = f"/proc/{self.child}/task"
        try:
            return max(run_delay(f"{folder}/{thread}/schedstat") for thread in os.listdir(folder))
        except (OSError, ValueError):
            return 0.0

    def end(self, wall: float) -> dict[str, Any]:
        """Kill the child if it still runs; return how it ended, and what it wrote."""
        waited = self.waited()
        try:
            os.kill(self.child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        _, status, usage = os.wait4(self.child, 0)
        code = os.waitstatus_to_exitcode(status)
        for handle in [*self.kept, *self.pending, *([self.lines.handle] if self.lines else [])]:
            os.close(handle)
        error = self.kept[self.error][-ERROR_BYTES:]
        return {
            "code": code,
            "limit": self.limit,
            "stdout": self.kept[self.out].decode("utf-8", "replace"),
            "stderr": error.decode("utf-8", "replace"),
            "wall": wall,
            "cpu": usage.ru_utime + usage.ru_stime,
            "waited": waited,
        }


def run_delay(file: str) -> float:
    """Return the seconds for which a thread waited for a processor; 0 if it has ended."""
    try:
        with open(file, encoding="ascii") as figures:
            return int(figures.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
