"""Starting, losing and starting again, with real keepers and a stand-in for msrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hosts_helpers import STEPS, Bench, bench, is_alive, wait_until
from paths import HELPERS

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.hosts.recover import Restart, run_job

ALL = list(range(1, STEPS + 1))

LAUNCHER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from hosts_helpers import Bench
from pcl_reasoner.hosts.recover import run_job
from pcl_reasoner.core.stage import NoProgress

run_job(Bench(Path(sys.argv[1]), 1000).job(), NoProgress())
"""


def run(made: Bench, how: str = "local", **changes: Any) -> list[Restart]:
    return run_job(made.job(how, **changes), NoProgress())


def nothing_is_left(made: Bench) -> bool:
    files = made.output.glob("started_*")
    return not any(is_alive(int(word)) for file in files for word in file.read_text().split())


def test_two_hosts_train_to_the_end(tmp_path: Path) -> None:
    made = bench(tmp_path)
    assert run(made) == []
    assert made.made == ALL
    assert nothing_is_left(made)
    logs = sorted(path.relative_to(made.logs).as_posix() for path in made.logs.rglob("*.log"))
    assert logs == [
        "host_0/start_1/msrun.log",
        "host_0/start_1/worker_0.log",
        "host_1/start_1/msrun.log",
        "host_1/start_1/worker_1.log",
    ]
    assert not (made.logs / "restarts.jsonl").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_is_noticed_and_training_goes_on(tmp_path: Path, rank: int) -> None:
    """The first host's msrun does not end by itself: it waits for its scheduler."""
    made = bench(tmp_path, {f"1.{rank}": {"step": 13, "do": "kill"}})
    [restart] = run(made)
    assert made.made == ALL
    assert restart.host == f"127.0.0.{rank + 1}"
    assert "killed by signal 9" in restart.reason and f"rank {rank} " in restart.reason
    assert (restart.step, restart.resumed_from) == (12, 10)
    assert restart.seconds_to_notice < 8  # silence is noticed after 10
    assert not (made.output / "overlap").exists(), "the second start met the first"
    assert nothing_is_left(made)
    [line] = (made.logs / "restarts.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == restart.reason
    assert (made.logs / f"host_{rank}" / "start_2" / "msrun.log").exists()


def test_it_is_started_again_so_often_and_no_more(tmp_path: Path) -> None:
    faults = {f"{start}.1": {"step": 7, "do": "kill"} for start in (1, 2, 3)}
    made = bench(tmp_path, faults)
    with pytest.raises(StageError, match="started 3 times, placement.restarts is 2"):
        run(made, restarts=2)
    assert made.starts() == 3
    assert len((made.logs / "restarts.jsonl").read_text().splitlines()) == 2
    assert nothing_is_left(made)


def test_an_error_before_the_first_step_is_not_tried_again(tmp_path: Path) -> None:
    made = bench(tmp_path, {"1.1": {"step": 1, "do": "exit 1"}})
    with pytest.raises(StageError) as caught:
        run(made)
    assert "127.0.0.2 ended with exit code 1: RuntimeError: as told" in str(caught.value)
    assert "worker_1.log" in str(caught.value)
    assert made.starts(1) == 1
    assert nothing_is_left(made)


def test_a_wrong_configuration_is_not_tried_again_whenever_it_shows(tmp_path: Path) -> None:
    made = bench(tmp_path, {"1.0": {"step": 9, "do": "exit 2"}})
    with pytest.raises(StageError, match="exit code 2.*The same would happen again"):
        run(made)
    assert made.starts() == 1


def test_an_error_after_some_steps_is_tried_again(tmp_path: Path) -> None:
    made = bench(tmp_path, {"1.0": {"step": 9, "do": "exit 1"}})
    [restart] = run(made)
    assert (restart.step, restart.resumed_from) == (8, 5)
    assert made.made == ALL


def test_a_rule_that_ended_training_is_not_overruled(tmp_path: Path) -> None:
    made = bench(tmp_path, {"1.0": {"step": 9, "do": "stop"}})
    with pytest.raises(StageError, match="^step 9: the loss is nan.$"):
        run(made)
    assert made.starts() == 1
    assert nothing_is_left(made)


def test_a_full_disk_is_said_and_not_tried_again(tmp_path: Path) -> None:
    made = bench(tmp_path, {"1.1": {"step": 9, "do": "full"}})
    with pytest.raises(StageError, match=r"127\.0\.0\.2 .*No space left.*Free space there"):
        run(made)
    assert made.starts() == 1
    assert nothing_is_left(made)


def test_a_disk_that_was_full_is_no_complaint_of_the_next_command(tmp_path: Path) -> None:
    made = bench(tmp_path, {"1.1": {"step": 9, "do": "full"}, "2.1": {"step": 12, "do": "exit 1"}})
    with pytest.raises(StageError, match="Free space there"):
        run(made)
    # As a killed launcher leaves it.
    log = made.output / "work" / "msrun_log" / "worker_1.log"
    kept = made.logs / "host_1" / "start_1" / "worker_1.log"
    log.write_bytes(kept.read_bytes())
    [restart] = run(made)
    assert "RuntimeError: as told" in restart.reason
    assert made.made == ALL


def test_training_that_hangs_is_started_again(tmp_path: Path) -> None:
    made = bench(tmp_path, {"1.0": {"step": 9, "do": "hang"}})
    [restart] = run(made, stall_seconds=4)
    assert "no new step for" in restart.reason
    assert 4 <= restart.seconds_to_notice < 30
    assert made.made == ALL
    assert not (made.output / "overlap").exists()


def test_a_keeper_that_is_killed_leaves_nothing_and_is_replaced(tmp_path: Path) -> None:
    made = bench(tmp_path, {"1.1": {"step": 8, "do": "kill keeper"}})
    [restart] = run(made)
    assert "the connection to 127.0.0.2 ended" in restart.reason
    assert restart.hosts == ["127.0.0.1", "127.0.0.2"]
    assert made.made == ALL
    assert not (made.output / "overlap").exists()
    assert nothing_is_left(made)


@pytest.mark.parametrize("lost", [pytest.param("node01", marks=pytest.mark.slow), "node02"])
def test_a_spare_host_takes_the_place_of_one_that_stays_away(
    tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = int(lost[-1]) - 1
    made = bench(tmp_path, {f"1.{rank}": {"step": 8, "do": f"down {lost}"}})
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")
    monkeypatch.setenv("DOWN", str(made.down))
    (made.down / "spare1").touch()
    [restart] = run(made, "ssh", hosts=["node01", "node02"], spare_hosts=["spare1", "spare2"])
    expected = ["spare2" if host == lost else host for host in ("node01", "node02")]
    assert restart.hosts == expected
    assert made.made == ALL
    assert nothing_is_left(made)


@pytest.mark.slow
def test_a_host_that_is_back_is_taken_again_and_one_that_stays_away_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(tmp_path, {"1.1": {"step": 8, "do": "down node02"}})
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")
    monkeypatch.setenv("DOWN", str(made.down))
    hosts = ["node01", "node02"]
    with pytest.raises(StageError, match="node02 stays away .it does not answer.*no spare host"):
        run(made, "ssh", hosts=hosts, cluster_time_out=1)
    assert nothing_is_left(made)
    (made.down / "node02").unlink()
    assert run(made, "ssh", hosts=hosts) == []
    assert made.made == ALL
    # The logs of the first command are there still.
    assert [path.name for path in sorted((made.logs / "host_1").iterdir())] == [
        "start_1",
        "start_2",
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_launcher_that_ends_leaves_nothing_and_the_next_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    made = bench(tmp_path, steps=1000)
    words = [sys.executable, "-c", LAUNCHER, str(tmp_path), str(HELPERS)]
    launcher = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(made.made) >= 12 and made.starts(1))
    there = [*made.started(0, 1), *made.started(1, 1)]
    assert all(is_alive(process) for process in there)
    launcher.send_signal(number)
    launcher.wait(20)
    # Interrupted, it waits itself; killed, it cannot.
    seconds = 8 if number == signal.SIGKILL else 0.1
    wait_until(lambda: not any(is_alive(process) for process in there), seconds)
    made.steps = made.made[-1] + 10
    (made.output / "steps.json").write_text(str(made.steps))
    assert run(made) == []
    assert made.made == list(range(1, made.steps + 1))


def test_a_launcher_that_is_silent_is_taken_for_gone(tmp_path: Path) -> None:
    """As with a cut link: the connection is there, and nothing comes over it."""
    made = bench(tmp_path, steps=1000)
    words = [sys.executable, "-c", LAUNCHER, str(tmp_path), str(HELPERS)]
    launcher = subprocess.Popen(words)
    try:
        wait_until(lambda: len(made.made) >= 5 and made.starts(1))
        launcher.send_signal(signal.SIGSTOP)
        wait_until(lambda: nothing_is_left(made), seconds=60)
    finally:
        launcher.kill()
        launcher.wait()


def test_hosts_that_are_not_fit_are_not_started(tmp_path: Path) -> None:
    made = bench(tmp_path)
    job = made.job()
    unfit = type(job)(**job.__dict__ | {"check": lambda _: ["a: too old.", "b: no disk."]})
    with pytest.raises(StageError, match="(?s)2 checks before the start.*a: too old.*b: no disk"):
        run_job(unfit, NoProgress())
    assert made.starts() == 0
