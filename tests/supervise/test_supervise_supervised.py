"""A command is ended with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from servers import runs, wait_for

from pcl_reasoner.supervise.supervised import Supervised

STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
pathlib.Path("pids").write_text(f"{os.getpid()} {inner.pid}")
time.sleep(600)
"""
START = """
import sys, time
from pathlib import Path
from pcl_reasoner.supervise.supervised import Supervised
Supervised.here([sys.executable, "-c", sys.argv[1]], Path("log"), stop_seconds=0.2)
time.sleep(600)
"""


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


def started(pids: Path) -> list[int]:
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    return [int(word) for word in pids.read_text().split()]


def test_exit_code_log_folder_and_environment(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['NAME']); raise SystemExit(3)"
    environment, log = {**os.environ, "NAME": "value"}, tmp_path / "logs" / "log"
    for _ in range(2):
        with Supervised.here([sys.executable, "-c", code], log, tmp_path, environment) as command:
            assert command.wait(60) == 3
    first, header, second = log.read_text().splitlines()
    assert first == second == f"{tmp_path} value"
    assert header.startswith("== ") and code.split(";")[0] in header


def test_a_signal_is_a_negative_exit_code(tmp_path: Path) -> None:
    with Supervised.here(["bash", "-c", "kill -SEGV $$"], tmp_path / "log") as command:
        assert command.wait(60) == -signal.SIGSEGV


def test_one_that_ignores_the_end_is_killed_with_what_it_started(
    tmp_path: Path, pids: Path
) -> None:
    command = [sys.executable, "-c", STUBBORN]
    with Supervised.here(command, tmp_path / "log", tmp_path, stop_seconds=0.2) as stubborn:
        running = started(pids)
        assert stubborn.wait(0.1) is None
    assert stubborn.poll() == -signal.SIGKILL
    assert not any(runs(process) for process in running)


def test_the_command_ends_with_its_starter(tmp_path: Path, pids: Path) -> None:
    starter = subprocess.Popen([sys.executable, "-c", START, STUBBORN], cwd=tmp_path)
    running = started(pids)
    starter.kill()
    starter.wait()
    wait_for(lambda: not any(runs(process) for process in running))


def test_a_keeper_that_is_killed_leaves_nothing_to_the_next_of_the_same_mark(
    tmp_path: Path, pids: Path
) -> None:
    command = [sys.executable, "-c", STUBBORN]
    first = Supervised.here(command, tmp_path / "log", tmp_path, run=str(tmp_path))
    running = started(pids)
    first.process.kill()
    assert first.wait(60) == -signal.SIGKILL
    wait_for(lambda: not runs(running[0]))
    assert runs(running[1])  # it is in another session
    with Supervised.here(["true"], tmp_path / "log", run=str(tmp_path)) as second:
        assert second.wait(60) == 0
    assert not runs(running[1])
