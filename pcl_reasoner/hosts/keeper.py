"""The keeper: starts one host's command, reports its state, and kills all that is left of it.

    python -m pcl_reasoner.hosts.keeper

    standard input   {"run": "1f2e", "command": ["bash", "-c", "… msrun …"], …}   see Task
                     beat                    a line every few seconds
                     stop
    standard output  {"event": "started", "process": 4242}
                     {"event": "alive", "free": 81604378624, "complaint": "…"}    every second
                     {"event": "worker", "process": 4250, "rank": "1", "code": null, "signal": 9}
                     {"event": "exit", "code": 1}
                     {"event": "ended", "killed": 3}      no process of the run is left here

When standard input ends, or no line arrives for ``notice_seconds``, the launcher was killed or the
connection is cut. The keeper then kills every process of the run and exits. It uses only the
standard library, so that it starts in a fraction of a second.
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
"""Environment variable that every process of a run has on a host."""
POLL_SECONDS = 0.2
SAY_SECONDS = 1.0
_COMPLAINT = re.compile(rb"ERROR|CRITICAL|Error\b|No space left", re.ASCII)
_MSRUN_LOST = re.compile(rb"Worker process (\d+) exit with exception\. Error code: (-?\d+)")
_FULL = "No space left on device"
_COMPLAINT_BYTES = 300
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Task:
    """The keeper's task, which the first line of its standard input contains.

    Args:
        run: Marks the run on this host; processes that an earlier keeper left are killed first.
        command: The command to run; None: only kill the processes that are left.
        notice_seconds: The keeper stops everything after this long without a line of the launcher.
        log: File to which the command's output is appended.
        worker_logs: Log files that are searched for error lines.
        disk: Folder on the disk whose free space is reported.
        copies: Source -> target of log folders that are copied at the end, if they exist.
        follow_workers: False if MindSpore itself restarts lost workers.
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
    """Finds the last error line in the workers' logs, which grow and may not exist yet.

    A line about a full disk is kept, whatever follows it. A line of msrun counts only if the
    workers' logs have none, because msrun's errors are caused by theirs.

    Args:
        workers: Paths of the workers' logs.
        command: Path of the command's log.
    """

    def __init__(self, workers: list[str], command: str) -> None:
        self._places = dict.fromkeys([*workers, command], 0)
        self._workers = set(workers)
        self._of_workers: str | None = None
        self._of_command: str | None = None
        self.lost: dict[int, int] = {}
        """Process id -> exit code of failed workers by msrun's report (negative for a signal)."""

    @property
    def last(self) -> str | None:
        """The last error line; None if there is none."""
        return self._of_workers or self._of_command

    def read(self) -> str | None:
        """Read the lines added since the last call, and return the last error line."""
        for file, place in self._places.items():
            try:
                with Path(file).open("rb") as handle:
                    if handle.seek(0, os.SEEK_END) < place:  # the file was replaced
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
    """msrun's workers. The end of one is seen at once, even if it has another parent process."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[int, str]] = {}
        """pidfd -> (process id, rank)."""
        self._known: set[int] = set()

    def look(self) -> None:
        """Find workers that were started since the last call."""
        waiting = processes.children_of(os.getpid())
        while waiting:
            process = waiting.pop()
            if process in self._known:
                continue
            values = processes.environment_of(process)
            # msrun also starts `tail` on the workers' logs, with the workers' environment.
            if values.get("MS_ROLE") == "MS_WORKER" and processes.name_of(process) != "tail":
                # A worker's own children inherit its role, so they are not searched.
                self._follow(process, values.get("MS_NODE_ID", "?"))
            else:
                waiting += processes.children_of(process)

    def _follow(self, process: int, rank: str) -> None:
        self._known.add(process)
        try:
            self._ranks[os.pidfd_open(process)] = (process, rank)
        except OSError:  # it has just ended; msrun reports how
            return

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
        end = processes.how_it_ended(process)
        os.close(handle)
        return {"process": process, "rank": rank, "code": end.code, "signal": end.signal}


class Keeper:
    """Supervises one command, from its start to the end of its last process."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.complaints = Complaints(task.worker_logs, task.log)
        self.workers = Workers()
        self.child: subprocess.Popen[bytes] | None = None
        self.heard = time.monotonic()
        self.told_to_stop = False
        self._told: set[int] = set()
        """Process ids of workers whose end was reported."""

    def run(self) -> None:
        """Run the command until it ends or has to be stopped, then kill what is left of the run."""
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
                # A SIGKILL of the keeper must end the command, too.
                preexec_fn=processes.die_with_parent,
            )

    def _watch(self, child: subprocess.Popen[bytes]) -> int | None:
        """Monitor the command.

        Returns:
            Its exit code, negative for a signal; None if it has to be stopped.
        """
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
        """Report workers that ended before they were found, from msrun's log."""
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
        except OSError:  # the launcher has closed the pipe
            self.told_to_stop = True


def read_task() -> Task | None:
    """Read the task from the first line of standard input; None if the input ends before.

    The line is read byte by byte, so that the following lines are not buffered and ``select``
    sees them.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return None
        line += byte
    return Task(**json.loads(line))


def main() -> None:
    """Run the task that the first line of standard input contains."""
    processes.adopt_orphans()
    task = read_task()
    if task is None:
        return
    keeper = Keeper(task)

    def stop(*_: Any) -> None:
        keeper.told_to_stop = True

    # A keeper that is ended by hand still kills the processes of its run.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    keeper.run()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
