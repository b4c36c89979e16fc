"""The keeper: a process per host that supervises msrun there and reports to the launcher.

    python -P -m pcl_reasoner.hosts.keeper

    standard input   {"run": "1f2e…", "command": ["bash", "-c", "… msrun …"], …}
                     then heartbeats, see `pcl_reasoner.supervise.keeper`
    standard output  {"event": "started", "process": 4242}
                     {"event": "alive", "complaint": "…"}    every second; the last error line
                     {"event": "worker", "process": 4250, "rank": "1", "code": null, "signal": 9}
                     {"event": "exit", "code": 1}
                     {"event": "ended", "killed": 3}      no process of the run is left here

Uses only the standard library, so that it starts in a fraction of a second.
"""

import json
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.supervise import keeper, processes

SAY_SECONDS = 1.0
_COMPLAINT = re.compile(rb"ERROR|CRITICAL|Error\b|No space left", re.ASCII)
_MSRUN_LOST = re.compile(rb"Worker process (\d+) exit with exception\. Error code: (-?\d+)")
_FULL = "No space left on device"
_COMPLAINT_BYTES = 300
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Task(keeper.Task):
    """The task of a host's keeper.

    Args:
        log: File to which msrun's output is appended; standard output is only for the events.
        worker_logs: Log files that are searched for error lines.
        copies: Log folders that are copied at the end, if they exist: source -> target.
        follow_workers: True to report workers that end; False if MindIO restarts lost workers.
    """

    log: str | None = os.devnull
    worker_logs: list[str] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)
    follow_workers: bool = True


class Complaints:
    """Finds the last error line in the workers' logs, which grow and may not exist yet.

    A line about a full disk is never replaced by a later line. A line of msrun's log counts only if
    the workers' logs have no error line, because errors of workers cause errors of msrun.

    Args:
        workers: Paths of the workers' logs.
        command: Path of msrun's log.
    """

    def __init__(self, workers: list[str], command: str) -> None:
        self._offsets = dict.fromkeys([*workers, command], 0)
        self._workers = set(workers)
        self._of_workers: str | None = None
        self._of_command: str | None = None
        self.lost: dict[int, int] = {}
        """Failed workers in msrun's log: process id -> exit code (negative for a signal)."""

    @property
    def last(self) -> str | None:
        """The last error line; None if there is none."""
        return self._of_workers or self._of_command

    def read(self) -> str | None:
        """Read the lines added since the last call, and return the last error line."""
        for file, offset in self._offsets.items():
            try:
                with Path(file).open("rb") as handle:
                    if handle.seek(0, os.SEEK_END) < offset:  # the file was replaced
                        offset = 0
                    handle.seek(offset)
                    text = handle.read(_READ_BYTES)
            except OSError:
                continue
            lines = text[: text.rfind(b"\n") + 1]
            self._offsets[file] = offset + len(lines)
            if file in self._workers:
                self._of_workers = _complaint(lines, self._of_workers)
            else:
                self._of_command = _complaint(lines, self._of_command)
                for process, code in _MSRUN_LOST.findall(lines):
                    self.lost[int(process)] = int(code)
        return self.last


def _complaint(text: bytes, before: str | None) -> str | None:
    if before is not None and _FULL in before:
        return before
    found = [line for line in text.splitlines() if _COMPLAINT.search(line)]
    if not found:
        return before
    line = next((line for line in found if _FULL.encode() in line), found[-1])
    return line.strip()[:_COMPLAINT_BYTES].decode("utf-8", "replace")


class Workers:
    """Finds msrun's workers, and opens pidfds, by which the end of a worker is seen at once."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[int, str]] = {}
        """pidfd -> (process id, rank)."""
        self._found: set[int] = set()

    def look(self) -> None:
        """Find workers that were started since the last call."""
        waiting = processes.children_of(os.getpid())
        while waiting:
            process = waiting.pop()
            if process in self._found:
                continue
            values = processes.environment_of(process)
            # msrun also starts `tail` on the workers' logs, with the workers' environment.
            if values.get("MS_ROLE") == "MS_WORKER" and processes.name_of(process) != "tail":
                # A worker's own children inherit its role, so they are not searched.
                self._found.add(process)
                with suppress(OSError):  # it has just ended; msrun reports how
                    rank = values.get("MS_NODE_ID", "?")
                    self._ranks[os.pidfd_open(process)] = (process, rank)
            else:
                waiting += processes.children_of(process)

    @property
    def handles(self) -> list[int]:
        """The pidfds of the workers; one becomes readable when its worker ends."""
        return list(self._ranks)

    def ended(self, handle: int) -> dict[str, Any]:
        """Return the fields of the ``worker`` event for a worker that has ended.

        Args:
            handle: The worker's pidfd, which is closed here.
        """
        process, rank = self._ranks.pop(handle)
        code, number = processes.how_it_ended(process)
        os.close(handle)
        return {"process": process, "rank": rank, "code": code, "signal": number}


class Keeper(keeper.Keeper):
    """Supervises msrun on one host, and reports the host's state to the launcher."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._host = task
        self._complaints = Complaints(task.worker_logs, task.log or os.devnull)
        self._workers = Workers()
        self._say_at = time.monotonic()
        self._reported: set[int] = set()
        """Process ids of workers whose end was reported."""

    def run(self) -> int:
        """Run the command, report its end, copy its logs, and return the exit code."""
        code = super().run()
        self._copy()
        self._say("ended", killed=self.killed)
        return code

    def started(self, process: int) -> None:
        """Report that the command was started."""
        self._say("started", process=process)

    def exited(self, code: int) -> None:
        """Report the command's exit code."""
        self._say("exit", code=code, complaint=self._complaints.read())

    def look(self) -> list[int]:
        """Find new and lost workers, report that the host is alive, and return workers' pidfds."""
        if self._host.follow_workers:
            self._workers.look()
            self._report_lost()
        if time.monotonic() >= self._say_at:
            self._say_at += SAY_SECONDS
            self._say("alive", complaint=self._complaints.read())
        return self._workers.handles

    def ready(self, handle: int) -> None:
        """Report that the worker with this pidfd has ended."""
        self._report(self._workers.ended(handle))

    def _report(self, ended: dict[str, Any]) -> None:
        self._reported.add(ended["process"])
        self._say("worker", **ended, complaint=self._complaints.read())

    def _report_lost(self) -> None:
        """Report workers that ended before ``look`` found them; msrun's log names them."""
        self._complaints.read()
        for process, code in self._complaints.lost.items():
            if process not in self._reported:
                ended = {"process": process, "rank": "?", "code": code, "signal": None}
                self._report(ended if code >= 0 else {**ended, "code": None, "signal": -code})

    def _copy(self) -> None:
        for origin, to in self._host.copies.items():
            if Path(origin).is_dir():
                try:
                    shutil.copytree(origin, to, dirs_exist_ok=True)
                except (OSError, shutil.Error) as error:
                    self._say("not_copied", folder=origin, why=str(error)[:_COMPLAINT_BYTES])

    def _say(self, event: str, **values: Any) -> None:
        try:
            os.write(1, (json.dumps({"event": event, **values}) + "\n").encode())
        except OSError:  # the launcher has closed the pipe
            self.stopping = True


def main() -> None:
    """Run the task that the first line of standard input contains."""
    fields = keeper.read_task()
    if fields is not None:
        keeper.keep(Keeper(Task(**fields)))


if __name__ == "__main__":
    main()
