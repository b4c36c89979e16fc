"""What is written down of a step."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

FIGURES = np.float32([2, -1.0, 0.5, 1, -3.0, 0.25, 40])


def test_means_by_verdict_by_hand() -> None:
    from pcl_reasoner.train.step import means_by_verdict

    assert means_by_verdict(FIGURES) == {
        "tokens": 40,
        "right_count": 2,
        "right_m": -0.5,
        "right_p": 0.25,
        "wrong_count": 1,
        "wrong_m": -3.0,
        "wrong_p": 0.25,
    }
    none = means_by_verdict(np.float32([0, 0, 0, 1, -3.0, 0.25, 40]))
    assert (none["right_count"], none["right_m"], none["right_p"]) == (0, None, None)


def run_context(step: int, loss: float, skipped: int) -> Any:
    """What MindSpore gives a callback, as far as it is used."""
    import mindspore as ms

    figures = SimpleNamespace(name="network.step_figures", asnumpy=lambda: FIGURES)
    args = SimpleNamespace(
        cur_step_num=step,
        net_outputs=[np.float32(loss), np.bool_(False), 1.0, 1e-3, ms.Tensor(2.0)],
        train_network=SimpleNamespace(get_parameters=lambda: [figures]),
        train_dataset=SimpleNamespace(get_init_step=lambda: skipped),
    )
    return SimpleNamespace(original_args=lambda: args)


def test_a_resumed_run_cuts_the_lines_that_it_makes_again(tmp_path: Path) -> None:
    from pcl_reasoner.train.step import PclMetrics

    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step, "loss": 9.0}) + "\n" for step in (1, 2, 3)]
    path.write_text("".join(lines) + '{"step": 4, "lo')
    metrics = PclMetrics(str(path))
    metrics.on_train_begin(run_context(0, 0.0, skipped=2))
    metrics.on_train_step_end(run_context(1, 0.5, skipped=2))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(record["step"], record["loss"]) for record in records] == [
        (1, 9.0),
        (2, 9.0),
        (3, 0.5),
    ]
    assert (records[-1]["grad_norm"], records[-1]["tokens"]) == (2.0, 40)


def test_a_loss_that_is_not_finite_ends_the_run_and_is_on_record(tmp_path: Path) -> None:
    from pcl_reasoner.train.step import PclMetrics

    path = tmp_path / "metrics.jsonl"
    metrics = PclMetrics(str(path))
    metrics.on_train_begin(run_context(0, 0.0, skipped=0))
    with pytest.raises(RuntimeError, match="step 7: the loss is nan"):
        metrics.on_train_step_end(run_context(7, float("nan"), skipped=0))
    assert json.loads(path.read_text())["step"] == 7


def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pcl_reasoner.train.step import PclMetrics

    monkeypatch.setenv("RANK_ID", "1")
    path = tmp_path / "metrics.jsonl"
    metrics = PclMetrics(str(path))
    metrics.on_train_begin(run_context(0, 0.0, skipped=0))
    metrics.on_train_step_end(run_context(1, 0.5, skipped=0))
    assert not path.exists()
