"""The launcher's connection to a keeper.

A thread sends heartbeats. The events of all keepers arrive in one queue.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

from pcl_reasoner.hosts.decide import HostState, WorkerEnd
from pcl_reasoner.hosts.keeper import Task
from pcl_reasoner.supervise.connection import reason_in

BEATS = 4
"""Heartbeats per ``notice_seconds``."""
_KILL_SECONDS = 1.0


@dataclass(frozen=True)
class Event:
    """A line from a keeper, or the end of its connection.

    Args:
        rank: Index of the host.
        values: The parsed line; None when the connection has ended.
        at: When it arrived (monotonic seconds).
    """

    rank: int
    values: dict[str, Any] | None
    at: float


class Link:
    """The connection to the keeper on one host.

    Args:
        rank: Index of the host.
        host: Name of the host.
        command: The local command that starts the keeper on the host.
        task: The keeper's task.
        events: Queue that receives the keeper's lines.
    """

    def __init__(
        self, rank: int, host: str, command: list[str], task: Task, events: queue.Queue[Event]
    ) -> None:
        self.rank, self.task = rank, task
        self.state = HostState(host, time.monotonic())
        self.ended = False
        """True when the keeper has reported that no process of the run is left on its host."""
        self._events = events
        self._silent = threading.Event()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Ctrl-C must reach the launcher alone, which then stops the hosts in order.
            start_new_session=True,
        )
        for target in (self._read, self._beat):
            threading.Thread(target=target, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Any other line is a greeting of the host's shell.
            if line.startswith(b'{"event"'):
                self._events.put(Event(self.rank, json.loads(line), time.monotonic()))
        self._process.wait()
        self._events.put(Event(self.rank, None, time.monotonic()))

    def _beat(self) -> None:
        self._write(json.dumps(asdict(self.task)))
        while not self._silent.wait(self.task.notice_seconds / BEATS):
            self._write("beat")

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended, which _read reports
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def take(self, event: Event) -> None:
        """Update ``state`` with an event of this connection."""
        state, before = self.state, self.state.heard
        values = event.values
        if values is None:
            if not self.ended:
                state.closed = self._last_words()
            return
        state.heard = event.at
        if values.get("complaint"):
            state.complaint = values["complaint"]
        match values.get("event"):
            case "started":
                state.up = True
            case "alive":
                state.free = values["free"]
            case "worker":
                facts = (values["rank"], values["process"], values["code"], values["signal"])
                state.workers.append(WorkerEnd(*facts, at=event.at, since=before))
            case "exit":
                state.code = values["code"]
                state.code_at, state.code_since = event.at, before
            case "ended":
                self.ended = True

    def _last_words(self) -> str:
        self._errors.seek(0)
        return reason_in(self._errors.read().decode("utf-8", "replace"))

    def stop(self) -> None:
        """Ask the keeper to stop everything and to exit."""
        self._silent.set()
        self._write("stop")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """Stop the keeper and close the connection; kill the local command if it does not end."""
        self.stop()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._errors.close()
