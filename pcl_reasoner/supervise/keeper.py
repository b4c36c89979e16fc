"""The keeper: runs one command, and kills all its processes when it ends or its starter is gone.

    python -P -m pcl_reasoner.supervise.keeper

    standard input   {"run": "1f2e", "command": ["vllm", "serve", …], …}    one line, see Task
                     any bytes                                              heartbeats
                     end of input                                           end the command
    output           the command's
    exit code        the command's; 128 + n if signal n killed it

A command's children can outlive it: after SIGKILL of a vLLM server's front process its engines keep
the memory of the devices. The keeper is the parent of every descendant that loses its own, so it
finds them all. However the starter ends, the keeper sees standard input end. On another host a cut
link ends nothing, so there the starter sends heartbeats. The task comes by standard input because
every user of a machine can read command lines, and it may hold a key.

Uses only the standard library, so that it starts in a fraction of a second.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.supervise import processes

RUN = "PCL_RUN"
"""Environment variable that marks every process of a run on a host."""
POLL_SECONDS = 0.2
TASK_SECONDS = 60.0
"""Seconds within which the task must arrive."""


@dataclass(frozen=True)
class Task:
    """The keeper's task, which the first line of its standard input contains.

    Args:
        run: Marks the run on this host; processes that an earlier keeper left are killed first.
        command: The command to run; None: only kill the processes that are left.
        environment: Environment variables of the command, besides those of the keeper.
        log: File to which the command's output is appended; None: the keeper's own output.
        notice_seconds: The command is ended after this long without a heartbeat; 0: no limit.
        stop_seconds: Seconds that the command has to end after SIGTERM; 0: it is killed at once.
    """

    run: str
    command: list[str] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    log: str | None = None
    notice_seconds: float = 0.0
    stop_seconds: float = 0.0


class Keeper:
    """Supervises one command, from its start to the end of its last process."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.heard = time.monotonic()
        self.stopping = False
        self.killed = 0
        """Number of processes that had to be killed at the end."""

    def run(self) -> int:
        """Run the command until it ends or has to be stopped, then kill what is left of the run.

        Returns:
            The command's exit code; negative for a signal.
        """
        processes.kill_all(RUN, self.task.run)
        if self.task.command is None:
            return 0
        child = self._start(self.task.command)
        try:
            self.started(child.pid)
            if self._watch(child):
                self.exited(child.returncode)
            else:
                self._terminate(child)
        finally:
            self.killed = processes.kill_all(RUN, self.task.run, child.pid)
            code = child.wait()
        return code

    def started(self, process: int) -> None:
        """The command runs: nothing to do here; a keeper that reports does so."""

    def exited(self, code: int) -> None:
        """The command ended by itself: nothing to do here; a keeper that reports does so."""

    def look(self) -> Iterable[int]:
        """Called every POLL_SECONDS; returns file descriptors to wait for."""
        return ()

    def ready(self, handle: int) -> None:
        """One of the file descriptors that ``look`` returned is readable."""

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        log = self.task.log
        if log is not None:
            Path(log).parent.mkdir(parents=True, exist_ok=True)
        output = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output and subprocess.STDOUT,
                env={**os.environ, **self.task.environment, RUN: self.task.run},
                # A SIGKILL of the keeper must end the command, too.
                preexec_fn=processes.die_with_parent,
            )
        finally:
            if output is not None:
                os.close(output)

    def _watch(self, child: subprocess.Popen[bytes]) -> bool:
        """Wait for the end of the command; False if it has to be stopped before."""
        end = os.pidfd_open(child.pid)
        try:
            while child.poll() is None:
                if self.stopping or self._silent():
                    return False
                ready, _, _ = select.select([0, end, *self.look()], [], [], POLL_SECONDS)
                for handle in ready:
                    if handle == 0:
                        self._listen()
                    elif handle != end:
                        self.ready(handle)
                processes.reap(child.pid)
            return True
        finally:
            os.close(end)

    def _silent(self) -> bool:
        limit = self.task.notice_seconds
        return limit > 0 and time.monotonic() - self.heard > limit

    def _listen(self) -> None:
        self.heard = time.monotonic()
        if not os.read(0, 65536):
            self.stopping = True

    def _terminate(self, child: subprocess.Popen[bytes]) -> None:
        if self.task.stop_seconds > 0:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(self.task.stop_seconds)


def read_task() -> dict[str, Any] | None:
    """Read the task from the first line of standard input.

    The line is read byte by byte, so that the following bytes are not buffered and ``select`` sees
    them.

    Returns:
        The task's fields; None if no complete line has arrived within TASK_SECONDS, or the input
        has ended.
    """
    line, until = bytearray(), time.monotonic() + TASK_SECONDS
    while not line.endswith(b"\n"):
        there = select.select([0], [], [], max(0.0, until - time.monotonic()))[0]
        byte = os.read(0, 1) if there else b""
        if not byte:
            return None
        line += byte
    task: dict[str, Any] = json.loads(line)
    return task


def keep(keeper: Keeper) -> int:
    """Run a keeper that also ends its command, and all that is left of it, at a signal."""

    def stop(*_: Any) -> None:
        keeper.stopping = True

    processes.adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    return keeper.run()


def main() -> int:
    """Run the task that standard input contains, and return the command's exit code."""
    fields = read_task()
    if fields is None:
        return 1
    code = keep(Keeper(Task(**fields)))
    return code if code >= 0 else processes.SIGNALLED - code


if __name__ == "__main__":
    raise SystemExit(main())
