"""The sandboxes of a stage: a machine that fails is an error, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_helpers import PYTHON, host_state, need

from pcl_reasoner.sandbox import engines, pool
from pcl_reasoner.sandbox.cgroups import find_groups
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.memory import children, descendants
from pcl_reasoner.sandbox.pool import Sandboxes, problem_of
from pcl_reasoner.sandbox.run import Failure, Result
from pcl_reasoner.sandbox.session import CannotStart, Session
from pcl_reasoner.sandbox.test_cases import TestCases

TESTS = TestCases(format="stdin", cases=({"input": "3\n", "output": "6\n"},))
RIGHT = "print(2 * int(input()))"


def test_a_sandbox_that_does_not_start_is_an_error_and_no_wrong_answer() -> None:
    need("unshare")
    with (
        Sandboxes("unshare", 1, "/no/python3", Limits()) as sandboxes,
        pytest.raises(CannotStart, match="/no/python3"),
    ):
        sandboxes.test(RIGHT, TESTS)
    assert "No such file" in (problem_of("unshare", "/no/python3") or "")
    assert problem_of("unshare", PYTHON) is None


def test_a_sandbox_is_started_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    need("unshare")
    tries: list[int] = []
    really = engines.command

    def command(engine: engines.Engine, kind: str, python: str, *others: object) -> engines.Command:
        tries.append(1)
        return really(engine, kind, "/no/python3" if len(tries) < 3 else python, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(pool, "command", command)
    with Sandboxes("unshare", 1, PYTHON, Limits()) as sandboxes:
        assert sandboxes.test(RIGHT, TESTS) == Result(1, 1)
    assert len(tries) == 3


def test_who_ran_out_of_time_without_a_processor_is_tried_again_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contended = Result(0, 2, Failure(0, "wrong"), contended=True)
    results = [contended, Result(1, 1)]
    with Sandboxes("unshare", 3, PYTHON, Limits()) as sandboxes:
        rooms: list[int] = []

        def test(*_: object) -> Result:
            rooms.append(sandboxes._slots.qsize())
            return results.pop(0)

        monkeypatch.setattr(sandboxes, "_test", test)
        assert sandboxes.test(RIGHT, TESTS) == Result(1, 1)
        assert rooms == [2, 0]
        assert sandboxes._slots.qsize() == 3
        results = [Result(0, 1, Failure(0, "time"))]
        assert sandboxes.test(RIGHT, TESTS).failure is not None


RUN = """
import sys
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.test_cases import TestCases
tests = TestCases(format="stdin", cases=({"input": "", "output": "6"},))
code = "import os, time\\nos.fork() or os.setsid()\\ntime.sleep(60)"
with Sandboxes(sys.argv[1], 2, sys.argv[2], Limits(seconds=50)) as sandboxes:
    running = [sandboxes.submit(code, tests) for _ in range(2)]
    print("started", flush=True)
    running[0].result()
"""


@pytest.mark.parametrize("engine", ["bubblewrap", "unshare", "rlimits"])
def test_a_run_that_is_killed_leaves_no_process(engine: engines.Engine, open_folder: Path) -> None:
    need(engine)
    command = [sys.executable, "-c", RUN, engine, PYTHON]
    environment = {**os.environ, "TMPDIR": str(open_folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "started\n"
        until = time.monotonic() + 20
        # Two sandboxes, each with its process 1, a candidate and the candidate's child.
        while len(descendants(run.pid)) < 6:
            assert time.monotonic() < until
            time.sleep(0.05)
        inside = descendants(run.pid)
        assert len(inside) >= 6
        run.send_signal(signal.SIGKILL)
    until = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in inside):
        assert time.monotonic() < until
        time.sleep(0.05)


PROGRAMS = (
    RIGHT,
    "import time\ntime.sleep(9)",
    "import os\nos.abort()",
    "import os\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        pass",
    "import os\nos.chmod('.', 0)",  # the sandbox cannot be cleaned and is replaced
    "print('x' * (1 << 22))",
    "print(",
)


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.parametrize("engine", ["bubblewrap", "unshare", "rlimits"])
def test_nothing_is_left_after_many_runs(
    engine: engines.Engine, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(engine)
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    before = host_state()["processes"]
    files, own = open_files(), children(os.getpid())
    groups = find_groups()
    limits = Limits(seconds=0.2)
    with Sandboxes(engine, 2, PYTHON, limits, groups=groups) as sandboxes:
        asked = [sandboxes.submit(code, TESTS) for code in PROGRAMS * 4]
        right = [one.result().failure is None for one in asked]
        assert right == [code == RIGHT for code in PROGRAMS] * 4
    assert open_files() == files
    assert children(os.getpid()) == own
    assert list(open_folder.iterdir()) == []
    # Not even one that has ended, and for which nobody has waited.
    assert host_state()["processes"] == before
    for folder in groups.place.folders if groups else ():
        assert list(folder.glob(f"pclr-ms.{os.getpid()}.*")) == []


def test_a_number_that_another_process_has_by_now_is_not_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need("unshare")
    started = engines.command("unshare", "program", PYTHON, Limits(), 0)
    session = Session(started, {"language": "python", "code": RIGHT}, Limits())
    session.close()
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(group))
    session.close()
    assert killed == []


def test_before_linux_5_14_the_users_own_processes_get_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits(processes=24)
    monkeypatch.setattr(engines.os, "getuid", lambda: 987_654)
    monkeypatch.setattr(engines.platform, "release", lambda: "5.14.0-70.el9")
    assert engines.processes_allowed("unshare", limits, 6) == 24
    # Without a namespace of users they are always counted together.
    assert engines.processes_allowed("rlimits", limits, 6) == 6 * 24
    monkeypatch.setattr(engines.platform, "release", lambda: "5.10.0-136.oe2203")
    assert engines.processes_allowed("unshare", limits, 6) == 6 * 24
    monkeypatch.setattr(engines.os, "getuid", lambda: 0)
    assert engines.processes_allowed("unshare", limits, 6) == 24
    assert engines.processes_allowed("rlimits", limits, 6) == 24
