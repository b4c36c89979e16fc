"""Control groups: by the kernel where it lets us, and by the files of both versions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_helpers import PYTHON, need

from pcl_reasoner.sandbox.cgroups import (
    Group,
    Groups,
    Place,
    find_groups,
    find_place,
    remove_left_groups,
    start_time,
)
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.test_cases import TestCases, read_test_cases

TESTS = TestCases(format="stdin", cases=({"input": "", "output": "6"},) * 2)
CALL = {"args": [], "out": 6}
# Answers as soon as the kernel has ended one of its processes.
MANY = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        memory = bytearray(b"x") * (200 << 20)
        time.sleep(60)
        os._exit(0)
os.wait()
print(6)
"""


@pytest.fixture
def groups() -> Groups:
    found = find_groups()
    if found is None:
        pytest.skip("this process may make no control groups, so memory is looked at")
    return found


@pytest.fixture
def sandboxes(groups: Groups) -> Iterator[Sandboxes]:
    need("unshare")
    with Sandboxes("unshare", 2, PYTHON, Limits(seconds=20, megabytes=256), groups=groups) as found:
        yield found


def left(groups: Groups) -> list[str]:
    """Names of the groups of this process."""
    mine = f"pclr-ms.{os.getpid()}.*"
    return [one.name for folder in groups.place.folders for one in folder.glob(mine)]


def test_the_kernel_ends_what_takes_too_much_memory(
    groups: Groups, sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is looked at.
    monkeypatch.setattr("pcl_reasoner.sandbox.session.private_bytes", lambda process: 0)
    asked = sandboxes.submit(MANY, TESTS)
    assert sandboxes.test("x = bytearray(b'x') * (200 << 20)\nprint(6)", TESTS).failure is None
    failure = asked.result().failure
    assert failure is not None
    assert (failure.case, failure.reason) == (0, "memory")
    # A function that answers while its processes take too much has not passed either.
    code = f"def f():\n    {MANY.strip().replace(chr(10), chr(10) + '    ')}\n    return 6"
    calls = read_test_cases({"format": "functional", "entry": "f", "cases": [CALL]})
    failure = sandboxes.test(code, calls).failure
    assert failure is not None
    assert failure.reason == "memory"
    groups.close()
    assert left(groups) == []


def test_a_long_input_is_not_the_programs_memory(groups: Groups) -> None:
    need("unshare")
    case = {"input": "1\n" * (24 << 20), "output": "24"}
    tests = TestCases(format="stdin", cases=(case,))
    code = "import sys\nprint(sum(map(len, sys.stdin)) >> 21)"
    with Sandboxes("unshare", 1, PYTHON, Limits(megabytes=64), groups=groups) as sandboxes:
        assert sandboxes.test(code, tests).failure is None


RUN = """
import sys
from pcl_reasoner.sandbox.cgroups import find_groups
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.test_cases import TestCases
tests = TestCases(format="stdin", cases=({"input": "", "output": "6"},))
with Sandboxes("unshare", 1, sys.argv[1], Limits(seconds=50), groups=find_groups()) as sandboxes:
    running = sandboxes.submit("import time\\ntime.sleep(50)", tests)
    print("started", flush=True)
    running.result()
"""


def test_the_next_run_removes_what_a_killed_one_left(groups: Groups) -> None:
    need("unshare")
    command = [sys.executable, "-c", RUN, PYTHON]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "started\n"

        def mine() -> list[Path]:
            pattern = f"pclr-ms.{run.pid}.*"
            return [one for folder in groups.place.folders for one in folder.glob(pattern)]

        until = time.monotonic() + 20
        while not all((one / "cgroup.procs").read_text() for one in mine()) or not mine():
            assert time.monotonic() < until
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
    until = time.monotonic() + 10
    while mine():
        assert find_groups() is not None
        assert time.monotonic() < until
        time.sleep(0.01)


def test_only_groups_of_processes_that_have_ended_are_removed(tmp_path: Path) -> None:
    own, started = os.getpid(), start_time(os.getpid())
    assert started > 0
    names = [
        f"pclr-ms.{own}.{started}.0",
        f"pclr-ms.{own}.{started + 1}.0",  # another process had this number
        "pclr-ms.99999999.4711.3",
        "somebody-else",
    ]
    for name in names:
        (tmp_path / name).mkdir()
    remove_left_groups(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {names[0], names[3]}


def kernel(folder: Path, cgroup: str, *mounts: str) -> Path:
    """A folder with a process's files, as in /proc."""
    (folder / "cgroup").write_text(cgroup)
    text = "".join(f"3{number} 35 0:30 {mount}\n" for number, mount in enumerate(mounts))
    (folder / "mountinfo").write_text(text)
    return folder


def test_where_groups_are_made(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    own = root / "user.slice" / "app.scope"
    own.mkdir(parents=True)
    second = f"/ {root} rw - cgroup2 cgroup rw"
    proc = kernel(tmp_path, "0::/user.slice/app.scope\n", second)
    assert find_place(proc) is None
    # A group with processes distributes nothing; the one around it may.
    (own.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert find_place(proc) == Place(2, (own.parent,), True)
    (own / "cgroup.subtree_control").write_text("memory\n")
    assert find_place(proc) == Place(2, (own,), False)

    # Version 1: a hierarchy per controller, beside an empty one of version 2; in a container the
    # mount shows a part of the hierarchy.
    mounts = [
        f"/docker/1 {root}/memory rw - cgroup cgroup rw,memory",
        f"/docker/1 {root}/pids rw - cgroup cgroup rw,pids",
        f"/ {root}/unified rw - cgroup2 cgroup2 rw",
    ]
    lines = "4:memory:/docker/1/a\n3:pids:/docker/1\n0::/\n"
    proc = kernel(tmp_path, lines, *mounts)
    assert find_place(proc) == Place(1, (root / "memory" / "a", root / "pids"), True)
    proc = kernel(tmp_path, lines, *mounts[1:])
    assert find_place(proc) is None
    proc = kernel(tmp_path, "4:memory,pids:/x\n", f"/ {root}/both rw - cgroup c rw,memory,pids")
    assert find_place(proc) == Place(1, (root / "both" / "x",), True)
    assert find_groups(proc) is None  # there is no such folder


def test_what_is_written_to_a_group_of_version_2(tmp_path: Path) -> None:
    groups = Groups(Place(2, (tmp_path,), True))
    group = groups.make(24)
    (folder,) = group.folders
    assert folder.name.startswith(f"pclr-ms.{os.getpid()}.{start_time(os.getpid())}.")
    # 64 MiB and 8 processes are for those that make the sandbox.
    assert (folder / "pids.max").read_text() == "32"
    group.limit_memory(512)
    assert (folder / "memory.max").read_text() == str(576 << 20)
    assert (folder / "memory.swap.max").read_text() == "0"
    group.add([4711])
    assert (folder / "cgroup.procs").read_text() == "4711"
    (folder / "memory.events").write_text("low 0\nmax 31\noom 2\noom_kill 3\n")
    assert group.kills() == 3
    (folder / "cgroup.kill").write_text("")
    groups.remove(group)
    assert (folder / "cgroup.kill").read_text() == "1"
    # The kernel removes the files of a folder with it.
    for file in folder.iterdir():
        file.unlink()
    groups.close()
    assert not folder.exists()


def test_processes_are_moved_and_ended_in_version_2() -> None:
    places = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
    place = next((one for one in places if (one / "cgroup.controllers").exists()), None)
    if place is None or not os.access(place, os.W_OK):
        pytest.skip("no hierarchy of version 2 in which this process may make groups")
    groups = Groups(Place(2, (place,), False))
    group = groups.make(1)
    with subprocess.Popen([PYTHON, "-c", "input()"], stdin=subprocess.PIPE) as process:
        group.add([process.pid])
        text = Path(f"/proc/{process.pid}/cgroup").read_text()
        assert f"0::/{group.folders[0].name}\n" in text
        groups.remove(group)
        assert process.wait(10) == -signal.SIGKILL
    groups.close()
    assert not group.folders[0].exists()


def test_memory_with_swap_is_never_below_memory_in_version_1(tmp_path: Path) -> None:
    written: list[tuple[str, int]] = []

    class Folder(type(tmp_path)):  # type: ignore[misc]
        def write_text(self, text: str, *_: object) -> int:
            written.append((self.name.split(".")[1], int(text) >> 20))
            return len(text)

    group = Group(1, (Folder(tmp_path),))
    for megabytes in (512, 2048, 512):
        group.limit_memory(megabytes)
    limits = [("limit_in_bytes", 576), ("memsw", 576), ("memsw", 2112), ("limit_in_bytes", 2112)]
    assert written == [*limits, ("limit_in_bytes", 576), ("memsw", 576)]
