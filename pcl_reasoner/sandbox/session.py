"""A running sandbox, as the checker sees it.

    with Session(command, {"language": "python", "code": "print(int(input()) * 2)"}, limits) as one:
        end = one.run({"start": "program", "stdin": "3\\n"})        end.stdout == "6\\n"

The program in the sandbox ends what takes too long (sandbox_program/init.py). If it does not
answer, or the memory grows over its limit, the whole sandbox is killed here.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.sandbox.cgroups import Group, Groups
from pcl_reasoner.sandbox.engines import Command
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.memory import (
    LOOK_SECONDS,
    MemoryWatch,
    children,
    descendants,
    private_bytes,
)
from pcl_reasoner.sandbox_program.child_run import STRETCH

START_SECONDS = 20.0
"""Seconds within which a sandbox must be ready; the compiler's come on top."""
END_SECONDS = 1.0
"""Seconds within which the process outside must have ended after the sandbox's process 1."""
SLACK_SECONDS = 2.0
"""Seconds over a test's longest time after which the sandbox is killed from outside."""
BYTES_PER_SECOND = 1e7
"""Bytes of a message that reach the test within a second, even on a busy machine."""
COPIES = 8
"""How often the sandbox's first process holds a message: as it came, parsed, and to be sent."""
CHUNK = 1 << 16
NOT_STARTED = "the sandbox did not start: "


class CannotStart(StageError):
    """Raised when a sandbox does not start: an error of the machine, never of a candidate."""


class CompileError(Exception):
    """Raised when the candidate's program does not compile; the message is the compiler's.

    Args:
        message: What the compiler says, or the limit's name.
        limit: The limit that it reached: ``time``, ``memory``, ``lost`` or None.
    """

    def __init__(self, message: str, limit: str | None = None) -> None:
        super().__init__(message)
        self.limit = limit


@dataclass(frozen=True)
class End:
    """How a test's process ended.

    Args:
        code: Its exit code; negative for a signal.
        limit: The limit that it reached: ``time``, ``output``, ``memory``, ``lost`` (the sandbox
            itself was killed) or None.
        stdout: What it wrote.
        stderr: The end of what it wrote to standard error.
        wall: Wall-clock seconds.
        cpu: Seconds of processor time.
        waited: Seconds for which it could have run, and other processes ran instead.
    """

    code: int
    limit: str | None = None
    stdout: str = ""
    stderr: str = ""
    wall: float = 0.0
    cpu: float = 0.0
    waited: float = 0.0


class Session:
    """A sandbox with one program.

    Args:
        command: How it is started.
        program: The program: ``language`` and ``code``.
        limits: What its processes may use.
        watch: Looks at the memory of all sandboxes of the same response, if there are no groups.
        groups: Makes its control group; None: its memory is looked at.

    Raises:
        CannotStart: The sandbox does not start.
        CompileError: The program does not compile.
    """

    def __init__(
        self,
        command: Command,
        program: dict[str, Any],
        limits: Limits,
        watch: MemoryWatch | None = None,
        groups: Groups | None = None,
    ) -> None:
        self.command, self.limits, self.groups = command, limits, groups
        self.watch = watch or MemoryWatch()
        self.alive = True
        self.running = False
        """Whether a test runs."""
        self._megabytes = max(limits.megabytes, limits.compile_megabytes)
        """MiB that the candidate's processes may have together."""
        self._copies = 0
        """MiB that the sandbox's first process needs for the longest message."""
        self._over = False
        self._kills = 0
        self._rest = bytearray()
        self._lines: list[bytes] = []
        self._group: Group | None = None
        try:
            self.process = command.start()
        except OSError as error:
            command.end()
            raise CannotStart(f"{command.words[0]}: {error.strerror or error}") from error
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._in, False)
        try:
            self._begin(program)
        except BaseException:
            self.close()
            raise

    def _begin(self, program: dict[str, Any]) -> None:
        """Give the sandbox its program, and wait until it is compiled."""
        message = {**program, "limits": self.limits.as_json()}
        self.watch.sandboxes.append(self)
        self._deadline = time.monotonic() + START_SECONDS
        try:
            if self.groups is None:
                self.send(message)
                self._receive()
            else:
                # It takes the kernel some milliseconds, in which the sandbox starts. It knows the
                # program only when all of it is in the group.
                self._group = self.groups.make(self.limits.processes)
                self._limit_group()
                self._group.add([self.process.pid])
                self._receive()
                self._group.add(descendants(self.process.pid))
                self.send(message)
        except (_Ended, OSError) as error:
            raise CannotStart(NOT_STARTED + (self._complaint() or str(error))) from error
        self._deadline = time.monotonic() + STRETCH * self.limits.compile_seconds + SLACK_SECONDS
        try:
            answer = self._receive()
        except _Ended as error:
            # Only the candidate's text can be the reason.
            raise CompileError(str(error), limit=str(error)) from error
        if "failed" in answer:
            limit = answer["failed"] if answer["failed"] in ("time", "memory") else None
            raise CompileError(answer["failed"], limit)
        self._megabytes = self.limits.megabytes
        self._limit_group()
        if len(self.watch.sandboxes) == 1:
            self.watch.wait()

    def _limit_group(self) -> None:
        if self._group is not None:
            with suppress(OSError):  # more is in use; the limit before stays
                total = self._megabytes + self.limits.disk_megabytes + self._copies
                self._group.limit_memory(total)

    def __enter__(self) -> Self:
        """Return the sandbox."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the sandbox."""
        self.close()

    def run(self, start: dict[str, Any]) -> End:
        """Run one test to its end."""
        self.begin(start)
        while isinstance(message := self.next(), str):
            pass
        return message

    def begin(self, start: dict[str, Any]) -> None:
        """Start a test; ``next`` returns what it says, and then how it ended."""
        self._deadline = time.monotonic() + STRETCH * self.limits.seconds + SLACK_SECONDS
        self.running = True
        self.send({**start, "seconds": self.limits.seconds})

    def next(self) -> str | End:
        """Return the next line that the test writes to its channel, or how it ended."""
        try:
            message = self._receive()
        except _Ended as error:
            self.close()
            # The sandbox's first process did not end the test in time: the machine is busy.
            late = SLACK_SECONDS if str(error) == "time" else 0.0
            return End(-signal.SIGKILL, limit=str(error), wall=late, waited=late)
        if "line" in message:
            return str(message["line"])
        self.running = False
        end = message["end"]
        if not end.pop("clean"):
            # Files or processes are left that could not be removed: the next test gets another.
            self.close()
        if end["limit"] is None and self._kernel_ended_one():
            end["limit"] = "memory"
        return End(**end)

    def _kernel_ended_one(self) -> bool:
        """Whether the kernel has ended a process for its memory since the last question."""
        before, self._kills = self._kills, self._group.kills() if self._group else 0
        return self._kills > before

    def say(self, line: str) -> None:
        """Write a line to the test's channel."""
        self.send({"line": line})

    def stop(self) -> End | None:
        """End the test, if it runs; return how it ended."""
        if self.running:
            self.send({"stop": True})
        return self.finish()

    def finish(self) -> End | None:
        """Wait until the test has ended, if it runs; what it still says is left out."""
        end = None
        while self.running:
            if isinstance(message := self.next(), End):
                end = message
        return end

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the program in the sandbox.

        What it says meanwhile is read, because it may wait until that is done.
        """
        data = memoryview(json.dumps(message).encode() + b"\n")
        self._deadline += len(data) / BYTES_PER_SECOND
        if (copies := COPIES * (len(data) >> 20)) > self._copies:
            self._copies = copies
            self._limit_group()
        # What ends it is found again by the next read.
        with suppress(_Ended, OSError):
            while data:
                self._wait(writing=True)
                with suppress(BlockingIOError):
                    data = data[os.write(self._in, data[:CHUNK]) :]

    def _receive(self) -> dict[str, Any]:
        """Wait for a message."""
        while not self._lines:
            self._wait()
        message: dict[str, Any] = json.loads(self._lines.pop(0))
        return message

    def _wait(self, writing: bool = False) -> None:
        """Wait until something arrives, or can be written; look at the memory meanwhile.

        Raises:
            _Ended: Time is up, or the sandbox has ended.
        """
        waiting = select.poll()  # select knows only the first 1,024 file descriptors
        waiting.register(self._out, select.POLLIN)
        if writing:
            waiting.register(self._in, select.POLLOUT)
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise _Ended("time")
            self.watch.look()
            ready = [handle for handle, _ in waiting.poll(min(left, LOOK_SECONDS) * 1000)]
            if self._out in ready:
                self._read()
            if ready:
                return

    def _read(self) -> None:
        data = os.read(self._out, CHUNK)
        if not data:
            raise _Ended("memory" if self._over else "lost")
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            self._lines += bytes(self._rest + head).split(b"\n")
            self._rest = bytearray(tail)
        else:
            self._rest += data

    def check_memory(self) -> None:
        """Kill the sandbox if its processes have more memory than they may."""
        if self._group is not None or self.process.returncode is not None:
            return
        # bubblewrap and our own engine wait outside of the sandbox for its first process.
        first = self.process.pid
        if self.command.namespaces:
            first = next(iter(children(first)), first)
        if private_bytes(first) > self._megabytes << 20:
            self._over = True
            self._kill()

    def _complaint(self) -> str:
        """Return what the sandbox wrote to standard error, as a part of a sentence."""
        self._kill()
        assert self.process.stderr is not None
        text = self.process.stderr.read(4000).decode("utf-8", "replace").strip()
        return text.partition(". See ")[0].rstrip(".")

    def _kill(self) -> None:
        """End all processes of the sandbox, and wait for those that have this one as a parent."""
        if self.process.returncode is not None:
            return  # its number may be another process's by now
        if self.command.namespaces:
            # First its process 1, with which all others end: the process outside that waits for it
            # then ends by itself. In the other order nobody would wait for process 1.
            _kill_all(children(self.process.pid))
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        else:
            for _ in range(3):  # between two looks they may have started others
                _kill_all(descendants(self.process.pid))
        if self.process.returncode is None:
            _kill_all([self.process.pid])
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10 * END_SECONDS)

    def close(self) -> None:
        """End the sandbox with everything in it."""
        self.alive = self.running = False
        self._kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        if self._group is not None and self.groups is not None:
            self.groups.remove(self._group)
            self._group = None
        self.command.end()


def _kill_all(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


class _Ended(Exception):
    """Raised when a sandbox will not answer; the message is a limit's name."""
