"""Keeps the command of one host: starts it, tells of it, and leaves nothing of it behind.

    python -m pcl_reasoner.hosts.keeper

    standard input   {"run": "1f2e", "command": ["bash", "-c", "… msrun …"], …}   see Task
                     beat                    a line every few seconds
                     stop
    standard output  {"event": "started", "process": 4242}
                     {"event": "alive", "free": 81604378624, "complaint": "…"}    every second
                     {"event": "worker", "process": 4250, "rank": "1", "code": null, "signal": 9}
                     {"event": "exit", "code": 1}
                     {"event": "ended", "killed": 3}      nothing of the run is left here

When standard input ends, or no line comes for ``notice_seconds``, it kills everything of the run
and ends: the launcher was killed, or the link is cut. Standard library alone, so that it starts
in a fraction of a second.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.supervise import processes

RUN = "PCL_RUN"
"""Environment variable of everything that belongs to a run on a host."""
POLL_SECONDS = 0.2
SAY_SECONDS = 1.0
_COMPLAINT = re.compile(rb"ERROR|CRITICAL|Error\b|No space left", re.ASCII)
_MSRUN_LOST = re.compile(rb"Worker process (\d+) exit with exception\. Error code: (-?\d+)")
_FULL = "No space left on device"
_COMPLAINT_BYTES = 300
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Task:
    """What a keeper is told in its first line.

    Args:
        run: Marks the run on this host; what an earlier keeper of it left is killed first.
        command: What to run; None: only clear away what is left.
        notice_seconds: Silence of the launcher after which all is stopped.
        log: File that takes what the command prints.
        worker_logs: Files in which to look for complaints.
        disk: Folder whose disk is watched.
        copies: From -> to: folders of logs that are copied at the end, where they exist.
        follow_workers: False where MindSpore itself starts lost workers again.
    """

    run: str
    command: list[str] | None = None
    notice_seconds: float = 10.0
    log: str = os.devnull
    worker_logs: list[str] = field(default_factory=list)
    disk: str = "/"
    copies: dict[str, str] = field(default_factory=dict)
    follow_workers: bool = True


class Complaints:
    """The last complaining line of the workers' logs, which grow or come to be later.

    A full disk is not forgotten over what is said after it. msrun's own words count where the
    workers say nothing: they follow from theirs.

    Args:
        workers: The workers' logs.
        command: What the command prints.
    """

    def __init__(self, workers: list[str], command: str) -> None:
        self._places = dict.fromkeys([*workers, command], 0)
        self._workers = set(workers)
        self._of_workers: str | None = None
        self._of_command: str | None = None
        self.lost: dict[int, int] = {}
        """Process -> exit code of workers that failed, as msrun has it."""

    @property
    def last(self) -> str | None:
        """The line; None where nobody complains."""
        return self._of_workers or self._of_command

    def read(self) -> str | None:
        """Look at what was added since."""
        for file, place in self._places.items():
            try:
                with Path(file).open("rb") as handle:
                    if handle.seek(0, os.SEEK_END) < place:  # written anew
                        place = 0
                    handle.seek(place)
                    text = handle.read(_READ_BYTES)
            except OSError:
                continue
            whole = text[: text.rfind(b"\n") + 1]
            self._places[file] = place + len(whole)
            if file in self._workers:
                self._of_workers = _complaint(whole, self._of_workers)
            else:
                self._of_command = _complaint(whole, self._of_command)
                for process, code in _MSRUN_LOST.findall(whole):
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
    """msrun's workers: noticed at once when one ends, whoever is its parent."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[int, str]] = {}
        """Handle -> process, rank."""
        self._known: set[int] = set()

    def look(self) -> None:
        """Find workers that were started meanwhile."""
        waiting = processes.children_of(os.getpid())
        while waiting:
            process = waiting.pop()
            if process in self._known:
                continue
            values = processes.environment_of(process)
            # msrun follows its workers' logs by `tail`, in the workers' environment.
            if values.get("MS_ROLE") == "MS_WORKER" and processes.name_of(process) != "tail":
                # What a worker starts itself inherits its role, and is not looked at.
                self._follow(process, values.get("MS_NODE_ID", "?"))
            else:
                waiting += processes.children_of(process)

    def _follow(self, process: int, rank: str) -> None:
        self._known.add(process)
        try:
            self._ranks[os.pidfd_open(process)] = (process, rank)
        except OSError:  # it has ended meanwhile; msrun tells how
            return

    @property
    def handles(self) -> list[int]:
        """Can be read when a worker has ended."""
        return list(self._ranks)

    def ended(self, handle: int) -> dict[str, Any]:
        """What to tell of the worker that has ended."""
        process, rank = self._ranks.pop(handle)
        end = processes.how_it_ended(process)
        os.close(handle)
        return {"process": process, "rank": rank, "code": end.code, "signal": end.signal}


class Keeper:
    """One command from its start to the end of its last process."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.complaints = Complaints(task.worker_logs, task.log)
        self.workers = Workers()
        self.child: subprocess.Popen[bytes] | None = None
        self.heard = time.monotonic()
        self.told_to_stop = False
        self._told: set[int] = set()
        """Workers whose end was told."""

    def run(self) -> None:
        """Keep the command until it ends, or until it has to be stopped."""
        processes.kill_all(RUN, self.task.run)
        code = None
        if self.task.command is not None:
            self.child = self._start(self.task.command)
            self._say("started", process=self.child.pid)
            code = self._watch(self.child)
        if code is not None:
            self._say("exit", code=code, complaint=self.complaints.read())
        killed = processes.kill_all(RUN, self.task.run)
        if self.child is not None:
            self.child.wait()
        self._copy()
        self._say("ended", killed=killed)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        Path(self.task.log).parent.mkdir(parents=True, exist_ok=True)
        with Path(self.task.log).open("ab") as handle:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                env={**os.environ, RUN: self.task.run},
                start_new_session=True,
                # So that SIGKILL of the keeper ends the command, too.
                preexec_fn=processes.die_with_parent,
            )

    def _watch(self, child: subprocess.Popen[bytes]) -> int | None:
        """The command's exit code, negative for a signal; None where it has to be stopped."""
        say_at = time.monotonic()
        while not self.told_to_stop:
            if child.poll() is not None:
                return child.returncode
            if time.monotonic() - self.heard > self.task.notice_seconds:
                return None
            if self.task.follow_workers:
                self.workers.look()
                self._tell_of_lost()
            if time.monotonic() >= say_at:
                say_at += SAY_SECONDS
                self._say("alive", free=self._free(), complaint=self.complaints.read())
            ready, _, _ = select.select([0, *self.workers.handles], [], [], POLL_SECONDS)
            for handle in ready:
                if handle == 0:
                    self._listen()
                else:
                    self._tell(self.workers.ended(handle))
            processes.reap(child.pid)
        return None

    def _tell(self, ended: dict[str, Any]) -> None:
        self._told.add(ended["process"])
        self._say("worker", **ended, complaint=self.complaints.read())

    def _tell_of_lost(self) -> None:
        """Tell of workers that ended before they were seen, by msrun's own word."""
        self.complaints.read()
        for process, code in self.complaints.lost.items():
            if process not in self._told:
                end = (
                    {"code": code, "signal": None} if code >= 0 else {"code": None, "signal": -code}
                )
                self._tell({"process": process, "rank": "?", **end})

    def _listen(self) -> None:
        data = os.read(0, 65536)
        self.heard = time.monotonic()
        if not data or b"stop" in data:
            self.told_to_stop = True

    def _free(self) -> int | None:
        try:
            return shutil.disk_usage(self.task.disk).free
        except OSError:
            return None

    def _copy(self) -> None:
        for origin, to in self.task.copies.items():
            if Path(origin).is_dir():
                try:
                    shutil.copytree(origin, to, dirs_exist_ok=True)
                except (OSError, shutil.Error) as error:
                    self._say("not_copied", folder=origin, why=str(error)[:_COMPLAINT_BYTES])

    def _say(self, event: str, **values: Any) -> None:
        try:
            os.write(1, (json.dumps({"event": event, **values}) + "\n").encode())
        except OSError:  # nobody listens any more
            self.told_to_stop = True


def read_task() -> Task | None:
    """The first line of standard input; None where it ended before.

    Read byte by byte, so that what follows stays where ``select`` sees it.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return None
        line += byte
    return Task(**json.loads(line))


def main() -> None:
    """Keep what the first line of standard input says."""
    processes.adopt_orphans()
    task = read_task()
    if task is None:
        return
    keeper = Keeper(task)

    def stop(*_: Any) -> None:
        keeper.told_to_stop = True

    # Ended by hand, it still clears away.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    keeper.run()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
