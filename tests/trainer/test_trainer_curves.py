"""Curves hold the numbers of metrics.jsonl, step by step."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from curve_helpers import read_events

from pcl_reasoner.core.errors import StageError

LINES: list[dict[str, Any]] = [
    {"step": 1, "loss": 0.5, "overflow": 0, "correct_m": -0.25, "incorrect_m": None},
    {"step": 2, "loss": 0.25, "overflow": 1, "correct_m": -0.125, "incorrect_m": -1.0},
    {"step": 3, "loss": 0.125, "overflow": 0, "correct_m": None, "incorrect_m": -2.0},
]


def run(callback: Any, metrics: Path, lines: list[dict[str, Any]]) -> None:
    """What the Trainer does: PclMetrics writes a line, and then the callback is called."""
    for line in lines:
        with metrics.open("a") as handle:
            handle.write(json.dumps(line) + "\n")
        callback.on_train_step_end(None)
    callback.on_train_end(None)


def test_tensorboard_has_every_number_and_no_step_twice_after_a_resume(tmp_path: Path) -> None:
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.curves import PclCurves

    metrics, curves = tmp_path / "metrics.jsonl", tmp_path / "curves"
    incorrect = {**LINES[2], "loss": 9.0, "lost": 1.0}
    run(PclCurves(str(metrics), str(curves)), metrics, [*LINES[:2], incorrect])
    # The third step is made again: its figure of before is taken back.
    run(PclCurves(str(metrics), str(curves)), metrics, LINES[2:])
    found = read_events(curves)
    assert found["loss"] == {1: 0.5, 2: 0.25, 3: 0.125}
    assert found["overflow"] == {1: 0, 2: 1, 3: 0}
    assert found["correct_m"] == {1: -0.25, 2: -0.125}
    assert found["incorrect_m"] == {2: -1.0, 3: -2.0}
    assert found["lost"] == {}


def test_a_round_of_several_steps_is_written_once(tmp_path: Path) -> None:
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.curves import PclCurves

    metrics, curves = tmp_path / "metrics.jsonl", tmp_path / "curves"
    callback = PclCurves(str(metrics), str(curves))
    callback.on_train_step_end(None)  # a micro-step before the end of the first round
    metrics.write_text("")
    callback.on_train_step_end(None)
    run(callback, metrics, LINES[:1])
    written = sorted(one.stat().st_size for one in curves.iterdir())
    callback.on_train_step_end(None)
    assert sorted(one.stat().st_size for one in curves.iterdir()) == written
    assert read_events(curves)["loss"] == {1: 0.5}


def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.curves import PclCurves

    monkeypatch.setenv("RANK_ID", "1")
    metrics, curves = tmp_path / "metrics.jsonl", tmp_path / "curves"
    run(PclCurves(str(metrics), str(curves)), metrics, LINES)
    assert not curves.exists()


@pytest.mark.skipif(importlib.util.find_spec("swanlab") is not None, reason="swanlab is there")
def test_swanlab_that_is_not_there_is_said_before_training(tmp_path: Path) -> None:
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.curves import PclCurves

    with pytest.raises(StageError, match=r"swanlab is not installed. .*'pclr-ms\[swanlab\]'"):
        PclCurves(str(tmp_path / "metrics.jsonl"), swanlab="mine")


def test_swanlab_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mindformers  # noqa: F401  (MindSpore's protobuf files do not load after SwanLab's)

    pytest.importorskip("swanlab", reason="the extra swanlab is not installed")
    from pcl_reasoner.trainer.curves import PclCurves

    monkeypatch.chdir(tmp_path)
    callback = PclCurves("metrics.jsonl", swanlab="mine", swanlab_mode="offline")
    run(callback, tmp_path / "metrics.jsonl", LINES)
    [folder] = (tmp_path / "swanlog").glob("*run*")
    held = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    for name in ("loss", "overflow", "correct_m", "incorrect_m"):
        assert name.encode() in held


@pytest.mark.parametrize("writer", ["PclMetrics", "PclRounds"])
def test_the_environment_asks_for_curves_and_the_yaml_comes_first(
    monkeypatch: pytest.MonkeyPatch,
    writer: str,
) -> None:
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.curves import add_curves

    metrics = {"type": writer, "path": "metrics.jsonl"}
    config: dict[str, Any] = {"callbacks": [dict(metrics)]}
    add_curves(config)
    assert config["callbacks"] == [metrics]
    monkeypatch.setenv("PCL_TENSORBOARD", "/data/curves")
    for _ in range(2):
        add_curves(config)
    asked = {"tensorboard": "/data/curves", "swanlab": None}
    curves = {"type": "PclCurves", "metrics": "metrics.jsonl", "rank": 0, **asked}
    assert config["callbacks"] == [metrics, curves]


def test_in_a_pipeline_the_rank_that_writes_the_lines_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.curves import PclCurves, add_curves

    metrics, curves = tmp_path / "metrics.jsonl", tmp_path / "curves"
    monkeypatch.setenv("PCL_TENSORBOARD", str(curves))
    config = {"callbacks": [{"type": "PclMetrics", "path": str(metrics), "rank": 2}]}
    add_curves(config)
    # Rank 0 may be on another host: there is no file of lines for it.
    PclCurves(**config["callbacks"][1]).on_train_step_end(None)
    monkeypatch.setenv("RANK_ID", "2")
    run(PclCurves(**config["callbacks"][1]), metrics, LINES)
    assert read_events(curves)["loss"] == {1: 0.5, 2: 0.25, 3: 0.125}
