"""The keeper: it runs one command, and kills all processes of the command at the end.

    python -P -m pcl_reasoner.supervise.keeper

    standard input   {"run": "1f2e", "command": ["vllm", "serve", …], …}    one line, see Task
                     any bytes                                              heartbeats
                     end of input                                           end the command
    output           output of the command
    exit code        exit code of the command; 128 + n if signal n killed it

Children can outlive a command: if vLLM's API process is killed, its engine processes keep the
memory of the devices. The keeper becomes the parent of every descendant whose parent ends, so it
finds them all. When the process that started the keeper (the starter) ends, in whatever way, the
keeper's standard input ends, and the keeper ends the command. If only the network link to another
host is cut, standard input does not end; therefore the starter sends heartbeats to other hosts.
The task may contain an API key, so it is not on the command line, which every user can read.

This module uses only the standard library, so that the keeper starts in a fraction of a second.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.supervise import processes

POLL_SECONDS = 0.2
TASK_SECONDS = 60.0
"""Seconds within which the task must arrive."""


@dataclass(frozen=True)
class Task:
    """The keeper's task: the fields of the first line of its standard input.

    Args:
        run: The run's mark (variable PCL_RUN); older processes with this mark are killed first.
        command: The command to run; None: only kill the processes that an earlier keeper left.
        environment: Environment variables of the command, in addition to those of the keeper.
        log: File to which the command's output is appended; None: the keeper's own output.
        notice_seconds: Seconds without a heartbeat after which the command is ended; 0: no limit.
        stop_seconds: Seconds between SIGTERM and SIGKILL of the command; 0: SIGKILL at once.
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
        """Run the command until it ends or must be stopped, then kill the run's other processes.

        Returns:
            The command's exit code; negative for a signal.
        """
        processes.kill_all(self.task.run)
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
            self.killed = processes.kill_all(self.task.run, child.pid)
            code = child.wait()
        return code

    def started(self, process: int) -> None:
        """Called when the command has started. A subclass may report it."""

    def exited(self, code: int) -> None:
        """Called when the command has ended by itself. A subclass may report it."""

    def look(self) -> Iterable[int]:
        """Called at least every POLL_SECONDS; returns file descriptors to wait for."""
        return ()

    def ready(self, handle: int) -> None:
        """Called when a file descriptor that ``look`` returned is readable."""

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        log = self.task.log
        if log is not None:
            Path(log).parent.mkdir(parents=True, exist_ok=True)
        with nullcontext() if log is None else Path(log).open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output and subprocess.STDOUT,
                env={**os.environ, **self.task.environment, processes.RUN: self.task.run},
                # If the keeper is killed, the command must end, too.
                preexec_fn=processes.die_with_parent,
            )

    def _watch(self, child: subprocess.Popen[bytes]) -> bool:
        """Wait for the command: True if it ended by itself, False if it must be stopped now."""
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
    return json.loads(line)


def keep(keeper: Keeper) -> int:
    """Run a keeper until it ends, or until SIGTERM, SIGINT or SIGHUP; return its exit code."""

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
