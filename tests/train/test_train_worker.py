"""Starting, watching and ending the training process; only whole checkpoints are taken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.train import worker
from pcl_reasoner.weights.seals import seal_files

RUN_AND_WAIT = """
import sys
from pathlib import Path
from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.train import worker

here = Path(sys.argv[1])
child = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"
worker.run_worker(
    [sys.executable, "-c", child], here, here / "log", here / "metrics", 1, {}, NoProgress()
)
"""


def checkpoint(folder: Path, name: str, when: int) -> Path:
    path = folder / "checkpoint" / "rank_0" / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"model.w": np.full(64, when, np.float32)}, path)
    os.utime(path, (when, when))
    return path


def test_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    assert worker.newest_checkpoint(tmp_path) is None
    first = checkpoint(tmp_path, "policy-5", 100)
    second = checkpoint(tmp_path, "policy-10", 200)
    third = checkpoint(tmp_path, "policy-15", 300)
    third.write_bytes(third.read_bytes()[:-4])
    assert worker.newest_checkpoint(tmp_path) == second
    third.chmod(0o400)
    said: list[str] = []
    worker.remove_broken_checkpoints(tmp_path, said.append)
    assert not third.exists()
    assert first.exists() and second.exists() and said == []


def test_checkpoints_are_passed_over_until_one_is_as_its_seal_says(tmp_path: Path) -> None:
    saved = [checkpoint(tmp_path, f"policy-{step}", step) for step in (5, 10, 15)]
    seal_files(saved[0].parent)
    for changed in saved[1:]:
        data = bytearray(changed.read_bytes())
        data[-1] ^= 1
        changed.write_bytes(data)
        os.utime(changed, (int(changed.stem[7:]),) * 2)
    said: list[str] = []
    worker.remove_broken_checkpoints(tmp_path, said.append)
    assert worker.newest_checkpoint(tmp_path) == saved[0]
    assert [str(path) in text for path, text in zip(saved[:0:-1], said, strict=True)] == [True] * 2
    assert sorted(path.name for path in saved[0].parent.iterdir()) == [
        "policy-5.safetensors",
        "policy-5.sha256",
    ]


def test_one_process_is_this_python_and_several_are_msrun() -> None:
    assert worker.command(["m.yaml"], 1, 8118, "logs") == [
        sys.executable,
        "-m",
        "pcl_reasoner.worker",
        "m.yaml",
    ]
    several = worker.command(["m.yaml"], 2, 8123, "logs")
    assert several[0] == str(Path(sys.executable).with_name("msrun"))
    assert several[1:] == [
        "--worker_num=2",
        "--local_worker_num=2",
        "--master_addr=127.0.0.1",
        "--master_port=8123",
        "--node_rank=0",
        "--log_dir=logs",
        "--join=True",
        "--cluster_time_out=300",
        "python",
        "-m",
        "pcl_reasoner.worker",
        "m.yaml",
    ]
    assert Path(several[0]).is_file()


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("raise SystemExit(3)", "ended with exit code 3."),
        (
            "import os; os.kill(os.getpid(), 9)",
            "was ended by SIGKILL, e.g. because memory ran out.",
        ),
        ("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV."),
    ],
)
def test_a_worker_that_fails_gives_its_end_and_last_lines(
    tmp_path: Path, ending: str, expected: str
) -> None:
    code = f"print('one'); print(); print('two', flush=True); {ending}"
    log, metrics = tmp_path / "logs" / "train.log", tmp_path / "metrics.jsonl"
    with pytest.raises(StageError) as caught:
        worker.run_worker([sys.executable, "-c", code], tmp_path, log, metrics, 1, {}, NoProgress())
    assert f"the MindFormers process {expected}" in str(caught.value)
    assert str(caught.value).endswith("one\ntwo")


def test_progress_is_the_last_whole_line_of_the_metrics(tmp_path: Path) -> None:
    seen: list[tuple[float, float | None, str, str]] = []

    class Watching:
        def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
            seen.append((done, total, unit, note))

    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.5}\n{"step": 3, "lo')
    code = "import time; time.sleep(2)"
    log = tmp_path / "log"
    worker.run_worker([sys.executable, "-c", code], tmp_path, log, metrics, 9, {}, Watching())
    assert seen[-1] == (2, 9, "steps", "loss 1.5000")


def test_the_environment_is_offline_and_finds_this_python() -> None:
    found = worker.environment({"GLOG_v": "1", "MINE": "x"})
    assert found["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert found["HF_HUB_OFFLINE"] == "1"
    assert (found["GLOG_v"], found["MINE"]) == ("1", "x")


def test_a_killed_runner_leaves_no_trainer_behind(tmp_path: Path) -> None:
    runner = subprocess.Popen([sys.executable, "-c", RUN_AND_WAIT, str(tmp_path)])
    pid = int(wait_for(tmp_path / "pid"))
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    assert ends(pid)


def test_an_interrupted_runner_ends_its_trainer(tmp_path: Path) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", RUN_AND_WAIT, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    pid = int(wait_for(tmp_path / "pid"))
    runner.send_signal(signal.SIGINT)
    runner.wait()
    assert ends(pid)


def wait_for(path: Path) -> str:
    for _ in range(1200):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path} was never written")


def ends(pid: int) -> bool:
    """True when a process ends within five seconds; one that waits to be reaped has ended."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_tree_of_read_only_files_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "work" / "inside"
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
    (folder / "file").chmod(0o400)
    folder.chmod(0o500)
    worker.remove_tree(tmp_path / "work")
    assert not (tmp_path / "work").exists()
    worker.remove_tree(tmp_path / "work")
