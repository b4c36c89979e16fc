"""The launcher's connections to the hosts' keepers (hosts/keeper.py), with one queue of events."""

import json
import queue
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.hosts.decide import HostState, WorkerEnd
from pcl_reasoner.hosts.keeper import Task
from pcl_reasoner.supervise.connection import reason_in
from pcl_reasoner.supervise.supervised import Supervised

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
        events: Queue that receives the keeper's events.
    """

    def __init__(
        self, rank: int, host: str, command: list[str], task: Task, events: queue.Queue[Event]
    ) -> None:
        self.rank = rank
        self.state = HostState(host, time.monotonic())
        self.ended = False
        """True when the keeper has reported that no process of the run is left on its host."""
        self._events = events
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._keeper = Supervised(command, task, subprocess.PIPE, self._errors)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        output = self._keeper.process.stdout
        assert output is not None
        for line in output:
            # Any other line is a greeting of the host's shell.
            if line.startswith(b'{"event"'):
                self._events.put(Event(self.rank, json.loads(line), time.monotonic()))
        self._keeper.process.wait()
        self._events.put(Event(self.rank, None, time.monotonic()))

    def take(self, event: Event) -> None:
        """Update ``state`` with an event of this connection."""
        state, before = self.state, self.state.heard
        values = event.values
        if values is None:
            if not self.ended:
                self._errors.seek(0)
                state.closed = reason_in(self._errors.read().decode("utf-8", "replace"))
            return
        state.heard = event.at
        if values.get("complaint"):
            state.complaint = values["complaint"]
        match values.get("event"):
            case "started":
                state.up = True
            case "worker":
                facts = (values["rank"], values["process"], values["code"], values["signal"])
                state.workers.append(WorkerEnd(*facts, at=event.at, since=before))
            case "exit":
                state.code = values["code"]
                state.code_at, state.code_since = event.at, before
            case "ended":
                self.ended = True

    def stop(self) -> None:
        """Tell the keeper to stop everything and to exit."""
        self._keeper.release()

    def close(self) -> None:
        """Stop the keeper and close the connection; kill the local command if it does not end."""
        self._keeper.stop(_KILL_SECONDS)
        self._errors.close()
