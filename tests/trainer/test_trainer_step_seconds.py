"""Seconds of steps: a line per step, also after a resume, and what is added to a configuration."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


def run_context(step: int, skipped: int = 0) -> Any:
    dataset = SimpleNamespace(get_init_step=lambda: skipped)
    args = SimpleNamespace(cur_step_num=step, train_dataset=dataset)
    return SimpleNamespace(original_args=lambda: args)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_and_what_is_between_them_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is 60 s old; steps of 9 and 4 s; 3 s between them, e.g. for a checkpoint."""
    from pcl_reasoner.trainer import step_seconds

    clock = [100.0]
    monkeypatch.setattr(step_seconds.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(step_seconds, "process_seconds", lambda: 60.0)
    path = tmp_path / "seconds.jsonl"
    callback = step_seconds.PclStepSeconds(str(path))
    callback.on_train_begin(run_context(0))
    for number, (step, after) in enumerate(((9.0, 3.0), (4.0, 0.0)), start=1):
        callback.on_train_step_begin(run_context(number))
        clock[0] += step
        callback.on_train_step_end(run_context(number))
        clock[0] += after
    callback.on_train_end(run_context(2))
    assert lines_of(path) == [
        {"step": 1, "seconds": 9.0, "before": 60.0, "after": 3.0},
        {"step": 2, "seconds": 4.0},
    ]


def test_a_resumed_run_cuts_lines_that_it_makes_again_and_damaged_ones(tmp_path: Path) -> None:
    from pcl_reasoner.trainer.step_seconds import PclStepSeconds

    path = tmp_path / "seconds.jsonl"
    path.write_bytes(b'{"step": 1, "seconds": 9}\n\xff{"x"\n{"step": 3, "seconds": 9}\n{"st')
    callback = PclStepSeconds(str(path))
    callback.on_train_begin(run_context(0, skipped=2))
    callback.on_train_step_begin(run_context(1, skipped=2))
    callback.on_train_step_end(run_context(1, skipped=2))
    callback.on_train_end(run_context(1, skipped=2))
    found = lines_of(path)
    assert [line["step"] for line in found] == [1, 3]
    assert found[0]["seconds"] == 9 and found[1]["seconds"] < 1 and found[1]["before"] > 0


def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pcl_reasoner.trainer.step_seconds import PclStepSeconds

    monkeypatch.setenv("RANK_ID", "3")
    callback = PclStepSeconds(str(tmp_path / "seconds.jsonl"), rank=2)
    callback.on_train_begin(run_context(0))
    callback.on_train_step_begin(run_context(1))
    callback.on_train_step_end(run_context(1))
    callback.on_train_end(run_context(1))
    assert list(tmp_path.iterdir()) == []


def test_this_process_is_older_than_this_test() -> None:
    """From /proc, whose clock ticks 100 times per second."""
    from pcl_reasoner.trainer.step_seconds import process_seconds

    first = process_seconds()
    time.sleep(0.05)
    assert 0.04 < process_seconds() - first < 5


def test_it_is_added_where_metrics_are_written() -> None:
    from pcl_reasoner.trainer.step_seconds import add_step_seconds

    metrics = {"type": "PclMetrics", "path": "out/metrics.jsonl", "rank": 96}
    config: dict[str, Any] = {"callbacks": [metrics, {"type": "CheckpointMonitor"}]}
    add_step_seconds(config)
    times = {"type": "PclStepSeconds", "path": "out/seconds.jsonl", "rank": 96}
    assert config["callbacks"][-1] == times
    other: dict[str, Any] = {"callbacks": [{"type": "PclRounds", "path": "metrics.jsonl"}]}
    add_step_seconds(other)
    assert len(other["callbacks"]) == 1
