"""A command under watch.py, here or on a host. All its processes end when this process ends.

Watched.here(["vllm", "serve", …], log, environment)               on this machine
Watched.on("node02", line, placement, log)                          over SSH, with heartbeats
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pcl_reasoner.core.schema import HostSettings, Placement
from pcl_reasoner.supervise import watch
from pcl_reasoner.supervise.connection import SSH, command_on
from pcl_reasoner.supervise.environment import environment_steps

STOP_SECONDS = 15.0
"""Seconds that a command has to end after SIGTERM; then its processes are killed."""
_BEATS = 4
"""Heartbeat bytes to a command on another host per ``notice_seconds``."""
_TAIL_LINES = 20


class Watched:
    """A running command.

    Args:
        words: The command of this machine that starts watch.py.
        log: File that all output is appended to.
        environment: Environment of the process on this machine; None: this process's.
        beat_seconds: Seconds between heartbeat bytes. None: no heartbeats, because on this machine
            the pipe that closes is enough.
        secret: The first line, which watch.py waits for; None if it waits for none.
    """

    def __init__(
        self,
        words: list[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        beat_seconds: float | None = None,
        secret: str | None = None,
    ) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as handle:
            handle.write(f"== {time.strftime('%Y-%m-%dT%H:%M:%S%z')} {words}\n".encode())
            handle.flush()
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=handle,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        if secret is not None and self.process.stdin is not None:
            with suppress(OSError):  # the process has ended
                self.process.stdin.write(f"{secret}\n".encode())
                self.process.stdin.flush()
        if beat_seconds is not None:
            threading.Thread(target=self._beat, args=[beat_seconds], daemon=True).start()

    @classmethod
    def here(
        cls, command: list[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> Watched:
        """Start a command on this machine."""
        words = [sys.executable, "-I", watch.__file__, str(STOP_SECONDS), "0", "", *command]
        return cls(words, log, environment)

    @classmethod
    def on(
        cls,
        host: str,
        line: str,
        placement: Placement,
        log: Path,
        secret: tuple[str, str] | None = None,
    ) -> Watched:
        """Start a shell line on a host.

        Args:
            host: One of the launch file's hosts.
            line: The shell line, as returned by `host_line`.
            placement: How the host is reached.
            log: File that all output is appended to.
            secret: An environment variable and its value, which no command line contains.
        """
        own = placement.per_host.get(host, HostSettings())
        silence = placement.notice_seconds
        words = [own.python or sys.executable, "-I", watch.__file__]
        name, value = secret or ("", None)
        words += [str(STOP_SECONDS), str(silence), name, "bash", "-c", line]
        start = command_on(host, words, SSH, placement.ssh, silence)
        return cls(start, log, beat_seconds=silence / _BEATS, secret=value)

    def _beat(self, seconds: float) -> None:
        """Send heartbeats, so that the command's host knows that this process runs."""
        assert self.process.stdin is not None
        while self.process.poll() is None:
            try:
                self.process.stdin.write(b".")
                self.process.stdin.flush()
            except (OSError, ValueError):  # the pipe was closed by let_go
                return
            time.sleep(seconds)

    @property
    def ended(self) -> bool:
        """Whether the command has ended."""
        return self.process.poll() is not None

    def last_lines(self) -> str:
        """The last lines of the log, for an error."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"Its log is {self.log}; the last lines:\n" + "\n".join(lines[-_TAIL_LINES:])

    def let_go(self) -> None:
        """Tell the command to end, and do not wait for it."""
        if self.process.stdin is not None:
            with suppress(OSError):  # the connection was cut with a byte under way
                self.process.stdin.close()  # watch.py ends the command

    def stop(self) -> None:
        """End the command and everything that it started."""
        self.let_go()
        try:
            self.process.wait(2 * STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        finally:
            # watch.py itself may have been killed. Its process id is also its group's id.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def host_line(
    placement: Placement,
    host: str,
    words: list[str],
    program: str,
    further: Mapping[str, str] | None = None,
    own: Mapping[str, str] | None = None,
) -> str:
    """The shell line for a host: it sets up the environment, then replaces the shell (exec).

    Args:
        placement: The launch file's placement.
        host: One of its hosts.
        words: The command.
        program: Path of the program. Its folder comes first in PATH, before that of ``per_host``.
        further: Environment variables that the launch file's environment overrides.
        own: Environment variables that override the host's.
    """
    steps = environment_steps(placement, host, program, further)
    path = f"export PATH={shlex.quote(str(Path(program).parent))}:$PATH"
    values = [f"export {name}={shlex.quote(value)}" for name, value in (own or {}).items()]
    return " && ".join([*steps, path, *values, f"exec {shlex.join(words)}"])
