"""What is written down of a step."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

FIGURES = np.float32(
    [
        # count, tokens, m, p, weight, entropy, no_advantage, clipped
        [2, 30, -1.0, 0.5, 0.5, 15, 1, 3],
        [1, 10, -3.0, 0.25, 0.25, 20, 0, 1],
    ]
)


def test_means_by_verdict_by_hand() -> None:
    from pcl_reasoner.trainer.step import by_verdict

    defined = dict.fromkeys(("entropy", "no_advantage", "clipped", "weight"), True)
    assert by_verdict(FIGURES, 1, defined) == {
        "tokens": 40,
        "no_advantage": pytest.approx(1 / 3),
        "clipped": 0.1,
        "correct_count": 2,
        "correct_weight": 0.5,
        "correct_m": -0.5,
        "correct_p": 0.25,
        "correct_length": 15.0,
        "correct_entropy": 0.5,
        "incorrect_count": 1,
        "incorrect_weight": 0.25,
        "incorrect_m": -3.0,
        "incorrect_p": 0.25,
        "incorrect_length": 10.0,
        "incorrect_entropy": 2.0,
    }
    # Two ranks have weights twice as large each, as their gradients are averaged.
    assert by_verdict(FIGURES, 2, defined)["correct_weight"] == 0.25


def test_what_has_no_meaning_is_none() -> None:
    from pcl_reasoner.trainer.step import by_verdict

    found = by_verdict(np.float32([[0] * 8, FIGURES[1]]), 1, {"weight": True})
    kinds = ("m", "p", "length", "entropy")
    assert (found["correct_count"], found["correct_weight"]) == (0, 0.0)
    assert [found[f"correct_{kind}"] for kind in kinds] == [None] * 4
    assert found["incorrect_entropy"] is found["no_advantage"] is found["clipped"] is None


def run_context(step: int, loss: float, skipped: int) -> Any:
    """What MindSpore gives a callback, as far as it is used."""
    import mindspore as ms

    figures = SimpleNamespace(name="network.step_figures", asnumpy=lambda: FIGURES)
    args = SimpleNamespace(
        cur_step_num=step,
        net_outputs=[np.float32(loss), np.bool_(False), 1.0, 1e-3, ms.Tensor(2.0)],
        train_network=SimpleNamespace(
            get_parameters=lambda: [figures], cells_and_names=lambda: iter(())
        ),
        train_dataset=SimpleNamespace(get_init_step=lambda: skipped),
    )
    return SimpleNamespace(original_args=lambda: args)


def test_a_resumed_run_cuts_the_lines_that_it_makes_again(tmp_path: Path) -> None:
    from pcl_reasoner.trainer.step import PclMetrics

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
    from pcl_reasoner.trainer.step import PclMetrics

    path = tmp_path / "metrics.jsonl"
    metrics = PclMetrics(str(path))
    metrics.on_train_begin(run_context(0, 0.0, skipped=0))
    with pytest.raises(RuntimeError, match="step 7: the loss is nan"):
        metrics.on_train_step_end(run_context(7, float("nan"), skipped=0))
    assert json.loads(path.read_text())["step"] == 7
    assert (tmp_path / "stopped.txt").read_text().startswith("step 7: the loss is nan")


def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pcl_reasoner.trainer.step import PclMetrics

    monkeypatch.setenv("RANK_ID", "1")
    path = tmp_path / "metrics.jsonl"
    metrics = PclMetrics(str(path))
    metrics.on_train_begin(run_context(0, 0.0, skipped=0))
    metrics.on_train_step_end(run_context(1, 0.5, skipped=0))
    assert not path.exists()


def test_lines_are_cut_without_a_moment_in_which_they_are_gone(tmp_path: Path) -> None:
    """Whoever has the file open sees the old lines: a kill leaves those or the new ones."""
    from pcl_reasoner.trainer.step import truncate_lines

    path = tmp_path / "metrics.jsonl"
    lines = '{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st'
    path.write_text(lines)
    with path.open() as before:
        assert truncate_lines(path, 2, writes=False) == [{"step": 1}, {"step": 2}]
        assert path.read_text() == lines
        truncate_lines(path, 2, writes=True)
        assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
        assert before.read() == lines
