"""The launcher's end of a keeper: heartbeats go out by themselves, events come in on one queue."""

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
"""Heartbeats in ``notice_seconds``."""
_KILL_SECONDS = 1.0


@dataclass(frozen=True)
class Event:
    """A line of a keeper, or the end of its connection.

    Args:
        rank: Place of the host.
        values: The line; None at the end.
        at: Monotonic seconds.
    """

    rank: int
    values: dict[str, Any] | None
    at: float


class Link:
    """A keeper on one host.

    Args:
        rank: Place of the host.
        host: Its name.
        command: What starts the keeper there, on this machine.
        task: What it is to keep.
        events: Where its lines go.
    """

    def __init__(
        self, rank: int, host: str, command: list[str], task: Task, events: queue.Queue[Event]
    ) -> None:
        self.rank, self.task = rank, task
        self.state = HostState(host, time.monotonic())
        self.ended = False
        """Has the keeper said that nothing of the run is left there?"""
        self._events = events
        self._silent = threading.Event()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Ctrl-C is for the launcher, which then stops the hosts in order.
            start_new_session=True,
        )
        for target in (self._read, self._beat):
            threading.Thread(target=target, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Anything else is a greeting of the host's shell.
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
        with contextlib.suppress(OSError, ValueError):  # it has ended; the reader tells
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def take(self, event: Event) -> None:
        """Bring the state up to date with an event of this link."""
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
        """Tell the keeper to stop everything, and to end."""
        self._silent.set()
        self._write("stop")
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """End what is left of the connection."""
        self.stop()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._errors.close()
