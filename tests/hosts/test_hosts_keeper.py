"""The keeper of one host: a process of its own, talked to by its two pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hosts_helpers import is_alive, wait_until

from pcl_reasoner.hosts.keeper import Complaints
from pcl_reasoner.supervise import processes

WORDS = [sys.executable, "-m", "pcl_reasoner.hosts.keeper"]


class Talk:
    """A keeper and what it says."""

    def __init__(self, **task: Any) -> None:
        self.process = subprocess.Popen(
            WORDS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.say(json.dumps({"run": f"test-{os.getpid()}", "notice_seconds": 30, **task}))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self, event: str) -> dict[str, Any]:
        """The next line of that event."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found: dict[str, Any] = json.loads(line)
            if found["event"] == event:
                return found
        raise AssertionError(f"it never said {event}")

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


def shell(line: str) -> list[str]:
    return ["bash", "-c", line]


TREE = (
    "echo $$ > one; sleep 600 & echo $! > two; setsid bash -c 'echo $$ > three; sleep 600' & wait"
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    return [tmp_path / name for name in ("one", "two", "three")]


def pids(files: list[Path]) -> list[int]:
    wait_until(lambda: all(file.exists() and file.read_text().strip() for file in files))
    return [int(file.read_text()) for file in files]


def test_the_command_ends_by_itself(tmp_path: Path) -> None:
    log = tmp_path / "folder" / "log"
    talk = Talk(command=shell("echo hello; exit 7"), log=str(log))
    assert talk.hear("exit")["code"] == 7
    assert talk.hear("ended")["killed"] == 0
    assert talk.process.wait(5) == 0
    assert log.read_text() == "hello\n"


def test_a_signal_leaves_no_process(tree: list[Path]) -> None:
    talk = Talk(command=shell(TREE))
    running = pids(tree)
    talk.process.terminate()
    assert talk.hear("ended")["killed"] >= 3
    assert not any(is_alive(process) for process in running)


def test_hung_up_on_it_leaves_no_process(tree: list[Path]) -> None:
    talk = Talk(command=shell(TREE))
    running = pids(tree)
    talk.hang_up()
    talk.process.wait(5)
    assert not any(is_alive(process) for process in running)


def test_without_a_heartbeat_it_stops_and_with_one_it_does_not(tree: list[Path]) -> None:
    talk = Talk(command=shell(TREE), notice_seconds=4.0)
    running = pids(tree)
    for _ in range(24):
        beaten = time.monotonic()
        talk.say("beat")
        time.sleep(0.25)
    assert all(is_alive(process) for process in running)
    talk.hear("ended")
    assert 4 <= time.monotonic() - beaten < 30
    assert not any(is_alive(process) for process in running)


def test_killed_itself_it_takes_the_command_along_and_the_next_clears_up(tree: list[Path]) -> None:
    talk = Talk(command=shell(TREE))
    running = pids(tree)
    talk.process.send_signal(signal.SIGKILL)
    talk.process.wait()
    wait_until(lambda: not is_alive(running[0]), seconds=5)
    assert is_alive(running[2])  # it had left the group
    following = Talk()
    following.hear("ended")
    assert not any(is_alive(process) for process in running)


def is_followed(keeper: int, process: int) -> bool:
    """Does the keeper hold the process by a file descriptor?"""
    for file in Path(f"/proc/{keeper}/fdinfo").glob("*"):
        with suppress(OSError):
            if f"Pid:\t{process}\n" in file.read_text():
                return True
    return False


def test_a_worker_that_is_killed_is_told_at_once(tmp_path: Path) -> None:
    """While its parent does not look, as msrun does once a second."""
    code = (
        "import os, subprocess, time; os.environ.update(MS_ROLE='MS_WORKER', MS_NODE_ID='5'); "
        f"p = subprocess.Popen(['sleep', '600']); open('{tmp_path}/pid', 'w').write(str(p.pid)); "
        "time.sleep(600)"
    )
    talk = Talk(command=[sys.executable, "-c", code])
    talk.hear("alive")
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process = int((tmp_path / "pid").read_text())
    wait_until(lambda: is_followed(talk.process.pid, process))
    os.kill(process, signal.SIGKILL)
    began = time.monotonic()
    told = talk.hear("worker")
    assert time.monotonic() - began < 10
    assert (told["process"], told["rank"]) == (process, "5")
    assert (told["code"], told["signal"]) == (None, 9)
    talk.hang_up()
    talk.hear("ended")


def test_a_worker_that_ended_before_it_was_seen_is_told_by_msruns_word(tmp_path: Path) -> None:
    line = "[ERROR] ME(1):Worker process 4250 exit with exception. Error code: -11."
    talk = Talk(
        command=shell(f"echo '{line}'; sleep 600"),
        log=str(tmp_path / "log"),
    )
    told = talk.hear("worker")
    assert (told["process"], told["code"], told["signal"]) == (4250, None, 11)
    assert told["complaint"] == line
    talk.hang_up()
    talk.hear("ended")


def test_complaints_are_reported(tmp_path: Path) -> None:
    log = tmp_path / "worker_0.log"
    talk = Talk(command=shell("sleep 600"), worker_logs=[str(log)])
    assert talk.hear("alive")["complaint"] is None
    log.write_text("all is well\n[ERROR] HCCL: link down\nINFO going on\nhalf an ERROR")
    wait_until(lambda: talk.hear("alive")["complaint"] == "[ERROR] HCCL: link down", seconds=5)
    talk.hang_up()
    talk.hear("ended")


def test_a_log_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    worker = tmp_path / "worker_0.log"
    complaints = Complaints([str(worker)], str(tmp_path / "none"))
    worker.write_text("ERROR one, and so on\n")
    assert complaints.read() == "ERROR one, and so on"
    worker.write_text("ERROR two\n")
    assert complaints.read() == "ERROR two"


def test_a_full_disk_is_not_forgotten_over_what_msrun_says(tmp_path: Path) -> None:
    worker, log = tmp_path / "worker_0.log", tmp_path / "msrun.log"
    full = "OSError: [Errno 28] No space left on device: 'x'"
    later = "RuntimeError: collective failed"
    line = f"echo 'RuntimeError: job exited'; printf \"{full}\\n{later}\\n\" > {worker}; exit 1"
    talk = Talk(command=shell(line), worker_logs=[str(worker)], log=str(log))
    assert talk.hear("exit")["complaint"] == full
    talk.hear("ended")


def test_folders_of_logs_are_copied_at_the_end(tmp_path: Path) -> None:
    origin = tmp_path / "plog"
    origin.mkdir()
    (origin / "plog-1.log").write_text("hccl")
    copies = {str(origin): str(tmp_path / "kept" / "plog"), str(tmp_path / "no"): "/nowhere"}
    talk = Talk(command=shell("true"), copies=copies)
    talk.hear("ended")
    assert (tmp_path / "kept" / "plog" / "plog-1.log").read_text() == "hccl"


def test_it_is_light(tmp_path: Path) -> None:
    code = "import sys, pcl_reasoner.hosts.keeper; print(*sorted(sys.modules))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    ours = {name for name in loaded if name.startswith("pcl_reasoner")}
    assert ours == {
        "pcl_reasoner",
        "pcl_reasoner.hosts",
        "pcl_reasoner.hosts.keeper",
        "pcl_reasoner.supervise",
        "pcl_reasoner.supervise.keeper",
        "pcl_reasoner.supervise.processes",
    }
    assert not {"pydantic", "yaml", "numpy"} & set(loaded)


def test_how_a_process_ended_is_read_before_its_parent_takes_leave() -> None:
    for line, expected in (("exit 3", (3, None)), ("kill -TERM $$", (None, 15))):
        child = subprocess.Popen(["bash", "-c", line])
        wait_until(lambda child=child: not is_alive(child.pid), seconds=5)
        assert processes.how_it_ended(child.pid) == expected
        child.wait()
        assert processes.how_it_ended(child.pid) == (None, None)
