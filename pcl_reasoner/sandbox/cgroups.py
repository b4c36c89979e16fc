"""Control groups: the kernel limits the memory and the processes of a sandbox.

Where this process may make groups, each sandbox gets one, and the kernel ends a process of it when
their memory together would pass the limit. Elsewhere the memory is looked at (memory.py).

    version 2   …/pclr-ms.4711.88123.0/{memory.max, memory.swap.max, pids.max, cgroup.procs}
                beside this process's own group, if that distributes memory and pids
    version 1   …/memory/…/pclr-ms.4711.88123.0/{memory.limit_in_bytes, cgroup.procs}
                …/pids/…/pclr-ms.4711.88123.0/{pids.max, cgroup.procs}

A group's name has the id and the start time of the process that made it. The groups of a run that
was killed are empty, as the kernel ends its sandboxes; the next run here removes them.

Source: Linux, admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. Version 1 was tried with the
kernel. Of version 2 moving, killing and removing were; its limits of memory and of processes were
written only to a folder in its place, as they are described.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

PREFIX = "pclr-ms"
SLACK_MEGABYTES = 64
"""MiB that a sandbox may have beyond its limit: its first process, its interpreter, page tables."""
SLACK_PROCESSES = 8
"""Processes that a sandbox may have beyond its limit: those that make it."""
REMOVE_SECONDS = 5.0
"""Seconds that the last processes of a group may take to end."""
_numbers = count()


@dataclass(frozen=True)
class Place:
    """Where this process can make groups.

    Args:
        version: 1 or 2.
        folders: The folder in which groups are made, per hierarchy; the first limits memory.
        pids: Whether processes can be limited, too.
    """

    version: int
    folders: tuple[Path, ...]
    pids: bool


@dataclass
class Groups:
    """Makes the groups of the sandboxes.

    Args:
        place: Where.
    """

    place: Place
    _busy: list[Group] = field(default_factory=list)
    """Groups whose processes were still ending."""

    def make(self, processes: int) -> Group:
        """Make a group.

        Args:
            processes: Processes and threads that it may have.

        Raises:
            OSError: It cannot be made.
        """
        self._busy = [group for group in self._busy if not group.try_remove()]
        name = f"{PREFIX}.{os.getpid()}.{start_time(os.getpid())}.{next(_numbers)}"
        group = Group(self.place.version, tuple(one / name for one in self.place.folders))
        for folder in group.folders:
            folder.mkdir()
        if self.place.pids:
            (group.folders[-1] / "pids.max").write_text(str(processes + SLACK_PROCESSES))
        return group

    def remove(self, group: Group) -> None:
        """Remove a group, now or when its last process has ended."""
        if not group.try_remove():
            self._busy.append(group)

    def close(self) -> None:
        """Wait until all groups are removed."""
        until = time.monotonic() + REMOVE_SECONDS
        while self._busy and time.monotonic() < until:
            self._busy = [group for group in self._busy if not group.try_remove()]
            time.sleep(0.01)


@dataclass
class Group:
    """The group of one sandbox.

    Args:
        version: 1 or 2.
        folders: Its folder per hierarchy; the first limits memory, the last one processes.
    """

    version: int
    folders: tuple[Path, ...]
    _bytes: int = 0

    def limit_memory(self, megabytes: int) -> None:
        """Limit the memory of all processes together; there is no swap beyond it."""
        size = (megabytes + SLACK_MEGABYTES) << 20
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if self.version == 2:
            (self.folders[0] / "memory.max").write_text(str(size))
            with suppress(FileNotFoundError):  # a kernel without swap
                (self.folders[0] / "memory.swap.max").write_text("0")
            return
        # The second one, memory and swap together, may never be the smaller one.
        for name in names if size < self._bytes or not self._bytes else reversed(names):
            with suppress(FileNotFoundError):  # a kernel that does not count swap
                (self.folders[0] / name).write_text(str(size))
        self._bytes = size

    def add(self, processes: Iterable[int]) -> None:
        """Move processes into the group; what they start from now on is there, too."""
        for folder in self.folders:
            present = _lines(folder / "cgroup.procs")
            for process in processes:
                if str(process) not in present:
                    (folder / "cgroup.procs").write_text(str(process))

    def kills(self) -> int:
        """Return how many processes of the group the kernel has ended for their memory."""
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        figures = dict(line.split() for line in _lines(self.folders[0] / file))
        return int(figures.get("oom_kill", 0))

    def try_remove(self) -> bool:
        """End what still runs in the group and remove it; return False if it still ends."""
        removed = True
        for folder in self.folders:
            _end_all(folder)
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                removed = False
        return removed


def _end_all(folder: Path) -> None:
    """Kill the processes of a group."""
    switch = folder / "cgroup.kill"
    if switch.exists():  # version 2, since Linux 5.14
        switch.write_text("1")
        return
    for process in _lines(folder / "cgroup.procs"):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(int(process), signal.SIGKILL)


def find_groups(proc: Path = Path("/proc/self")) -> Groups | None:
    """Return groups, if this process can make them; remove those of runs that were killed.

    Args:
        proc: The folder of this process in /proc.
    """
    try:
        place = find_place(proc)
        if place is None:
            return None
        groups = Groups(place)
        _try(groups)
    except OSError:
        return None
    for folder in place.folders:
        remove_left_groups(folder)
    return groups


def find_place(proc: Path) -> Place | None:
    """Return where this process could make groups, as far as the kernel's files say it.

    Args:
        proc: The folder of this process in /proc.
    """
    mounts = (proc / "mountinfo").read_text(encoding="utf-8").splitlines()
    found: dict[str, Path] = {}
    for line in (proc / "cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            folder = _folder_of(mounts, controller, path)
            if folder is not None:
                found[controller] = folder
    own = found.get("")
    for folder in [] if own is None else [own, own.parent]:
        given = _words(folder / "cgroup.subtree_control")
        if "memory" in given:
            return Place(2, (folder,), "pids" in given)
    if "memory" not in found:
        return None
    folders = [found["memory"], *([found["pids"]] if "pids" in found else [])]
    # Two controllers may be mounted together.
    return Place(1, tuple(dict.fromkeys(folders)), "pids" in found)


def _folder_of(mounts: list[str], controller: str, path: str) -> Path | None:
    """Return the folder of a group; None if its hierarchy is not mounted here.

    A line of mountinfo: ``36 35 0:30 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory``

    Args:
        mounts: The lines of mountinfo.
        controller: Name of a controller of version 1; "" for version 2.
        path: The group's path in the hierarchy.
    """
    for line in mounts:
        head, _, tail = line.partition(" - ")
        root, target = head.split()[3:5]
        kind, _, options = tail.split(maxsplit=2)
        if controller == "":
            fits = kind == "cgroup2"
        else:
            fits = kind == "cgroup" and controller in options.split(",")
        if fits and Path(path).is_relative_to(root):
            return Path(target) / Path(path).relative_to(root)
    return None


def _try(groups: Groups) -> None:
    """Limit a process that waits for its input.

    Raises:
        OSError: That does not work.
    """
    group = groups.make(SLACK_PROCESSES)
    try:
        with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as waiting:
            group.limit_memory(SLACK_MEGABYTES)
            group.add([waiting.pid])
            waiting.communicate()
    finally:
        groups.remove(group)
        groups.close()


def remove_left_groups(folder: Path) -> None:
    """Remove the groups of processes that have ended without doing it."""
    for group in folder.glob(f"{PREFIX}.*.*.*"):
        process, started = group.name.split(".")[1:3]
        if process.isdecimal() and str(start_time(int(process))) != started:
            with suppress(OSError):  # it has processes, or is not ours to remove
                group.rmdir()


def start_time(process: int) -> int:
    """Return when a process started, in ticks since the machine did; 0 if there is none."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    return [word for line in _lines(file) for word in line.split()]
