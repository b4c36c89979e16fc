"""Runs a command under a keeper (keeper.py). The command's processes end when this process ends.

with Supervised.here([python, "-m", "pcl_reasoner.worker", "mindformers.yaml"], log) as training:
    while training.poll() is None: …

Supervised.on("node02", line, placement, log)         on another host, over SSH with heartbeats
"""

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Self

from pcl_reasoner.core.files import last_lines
from pcl_reasoner.core.programs import Program
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.supervise.connection import SSH, command_on
from pcl_reasoner.supervise.environment import environment_steps, export, package_python
from pcl_reasoner.supervise.keeper import Task
from pcl_reasoner.supervise.processes import SIGNALLED

STOP_SECONDS = 15.0
"""Seconds between SIGTERM and SIGKILL when a command and its processes are ended."""
BEATS = 4
"""Heartbeats per ``notice_seconds``."""
KEEPER = "pcl_reasoner.supervise.keeper"
_TAIL_LINES = 20


class Supervised:
    """A running command. Leaving the context ends it and everything that it started.

    Args:
        keeper: The local command that starts the keeper, on this machine or on a host.
        task: The keeper's task.
        output: File for the keeper's output.
        errors: File for the keeper's error output; None for ``output``.
        folder: The keeper's working directory; None for that of this process.
        environment: The keeper's complete environment; None for that of this process.
    """

    def __init__(
        self,
        keeper: list[str],
        task: Task,
        output: int | IO[bytes],
        errors: IO[bytes] | None = None,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = Path(task.log or os.devnull)
        self.process = subprocess.Popen(
            keeper,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT if errors is None else errors,
            env=environment,
            # Ctrl-C must reach the starter alone, which then ends its commands in order.
            start_new_session=True,
        )
        self._released = threading.Event()
        self._write(json.dumps(asdict(task)).encode() + b"\n")
        if task.notice_seconds:
            beat = task.notice_seconds / BEATS
            threading.Thread(target=self._beat, args=[beat], daemon=True).start()

    @classmethod
    def here(
        cls,
        command: list[str],
        log: Path,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        run: str | None = None,
        stop_seconds: float | None = None,
    ) -> Self:
        """Start a command on this machine.

        Args:
            command: Program and arguments.
            log: File to which the command's output is appended.
            folder: The command's working directory; None for that of this process.
            environment: The command's complete environment; None for that of this process.
            run: Value of the variable PCL_RUN, which marks the command's processes. Processes that
                have this mark already are killed first. None for a new mark.
            stop_seconds: Seconds between SIGTERM and SIGKILL; None for STOP_SECONDS.
        """
        limit = STOP_SECONDS if stop_seconds is None else stop_seconds
        task = Task(run or secrets.token_hex(8), command, stop_seconds=limit)
        keeper = [sys.executable, "-P", "-m", KEEPER]
        return cls._logged(keeper, task, log, folder, environment)

    @classmethod
    def on(
        cls,
        host: str,
        line: str,
        placement: Placement,
        log: Path,
        secret: Mapping[str, str] | None = None,
        run: str | None = None,
    ) -> Self:
        """Start a shell line on a host.

        Args:
            host: One of the launch file's hosts.
            line: The shell line, as returned by `host_line`.
            placement: How the host is reached.
            log: File on this machine to which the output is appended.
            secret: Environment variables that must not be on a command line, such as keys.
            run: As in `here`.
        """
        python = package_python(placement, host)
        notice = placement.notice_seconds
        command = ["bash", "-c", line]
        mark = run or secrets.token_hex(8)
        task = Task(mark, command, dict(secret or {}), None, notice, STOP_SECONDS)
        keeper = command_on(host, [python, "-P", "-m", KEEPER], SSH, placement.ssh, notice)
        return cls._logged(keeper, task, log, None, None)

    @classmethod
    def _logged(
        cls,
        keeper: list[str],
        task: Task,
        log: Path,
        folder: Path | None,
        environment: Mapping[str, str] | None,
    ) -> Self:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as handle:
            if handle.tell():  # the log has output of an earlier start
                now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
                handle.write(f"== {now} {task.command}\n".encode())
                handle.flush()
            started = cls(keeper, task, handle, None, folder, environment)
        started.log = log
        return started

    def __enter__(self) -> Self:
        """Return the running command."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the command."""
        self.stop()

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):  # the keeper has ended, or the pipe was closed
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def _beat(self, seconds: float) -> None:
        while not self._released.wait(seconds):
            self._write(b".")

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the command's keeper runs."""
        return self.wait(0)

    def wait(self, limit: float | None = None) -> int | None:
        """Return the exit code; None if the keeper still runs after ``limit`` seconds."""
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        return SIGNALLED - code if SIGNALLED < code <= SIGNALLED + signal.SIGRTMAX else code

    def last_lines(self) -> str:
        """Return the last lines of the log, for an error message."""
        return f"Its log is {self.log}; the last lines:\n{last_lines(self.log, _TAIL_LINES)}"

    def release(self) -> None:
        """Tell the keeper to end the command, and do not wait for it."""
        self._released.set()
        assert self.process.stdin is not None
        with suppress(OSError):  # the connection was cut while a byte was sent
            self.process.stdin.close()

    def stop(self, limit: float | None = None) -> None:
        """End the command and everything that it started.

        Args:
            limit: Seconds after which the keeper itself is killed; None for twice STOP_SECONDS.
        """
        self.release()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2 * STOP_SECONDS if limit is None else limit)
        # The keeper itself may have been killed. Its process id is also its group's id.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def host_line(
    placement: Placement,
    host: str,
    command: list[str],
    program: str,
    base_env: Mapping[str, str] | None = None,
    override_env: Mapping[str, str] | None = None,
    settings: Program | None = None,
) -> str:
    """Return the shell line that sets up a host's environment and then executes a command there.

    Args:
        placement: The launch file's placement.
        host: One of its hosts.
        command: Program and arguments.
        program: Path of the program. Its folder comes first in PATH, before ``per_host``'s Python.
        base_env: Environment variables that the launch file's environment overrides.
        override_env: Environment variables that override the host's.
        settings: The launch file's part for the program; None: what all programs share.
    """
    steps = environment_steps(placement, host, program, base_env, settings)
    folder = Path(program).parent
    path = [f"export PATH={shlex.quote(str(folder))}:$PATH"] if folder != Path() else []
    exports = [export(name, value) for name, value in (override_env or {}).items()]
    return " && ".join([*steps, *path, *exports, f"exec {shlex.join(command)}"])
