"""Rules that end a run, on lines of metrics by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.train.stopping import Stop, correct_share, mean_p, reason_to_stop


def line(
    step: int, p: float | None = 0.5, correct: int = 2, incorrect: int = 2, **more: Any
) -> Any:
    figures = {
        "correct_count": correct,
        "correct_p": p,
        "incorrect_count": incorrect,
        "incorrect_p": 0.5,
    }
    return {"step": step, "loss": 0.5, "overflow": 0, **figures, **more}


def test_without_rules_only_a_loss_that_is_not_finite_ends_a_run() -> None:
    falling = [line(step, p=1 - step / 100, correct=0, overflow=1) for step in range(1, 60)]
    assert reason_to_stop(falling, Stop()) is None
    for value in (float("nan"), float("inf")):
        reason = reason_to_stop([line(1), line(2, loss=value)], Stop())
        assert reason is not None and reason.startswith(f"step 2: the loss is {value}")


def test_p_of_correct_responses_is_compared_between_windows_by_response() -> None:
    # First window (1·0.9 + 3·0.5) / 4 = 0.6, last (2·0.5) / 2 = 0.5: it fell by 0.1.
    records = [line(1, 0.9, 1), line(2, 0.5, 3), line(3, 0.5, 2), line(4, None, 0)]
    assert mean_p(records[:2], "correct") == pytest.approx(0.6)
    reason = reason_to_stop(records, Stop(correct_p_falls=0.09, window=2))
    assert reason is not None and "step 4: " in reason and "0.6000 to 0.5000" in reason
    assert reason_to_stop(records, Stop(correct_p_falls=0.11, window=2)) is None
    # Before there are two windows nothing is compared.
    assert reason_to_stop(records[:3], Stop(correct_p_falls=0.0, window=2)) is None


def test_the_share_of_correct_responses_is_of_the_last_window() -> None:
    records = [
        line(1, correct=0, incorrect=4),
        line(2, correct=1, incorrect=3),
        line(3, correct=2, incorrect=2),
    ]
    assert correct_share(records) == 0.25
    assert reason_to_stop(records, Stop(correct_share_below=0.5, window=1)) is None
    reason = reason_to_stop(records[:2], Stop(correct_share_below=0.3, window=1))
    assert reason is not None and "25.0%" in reason and "fewer than 30.0%" in reason


def test_skipped_steps_are_counted_from_the_start() -> None:
    records = [line(step, overflow=step % 2) for step in range(1, 6)]
    assert reason_to_stop(records, Stop(skipped_steps=4)) is None
    reason = reason_to_stop(records, Stop(skipped_steps=3))
    assert reason is not None and reason.startswith("step 5: 3 steps were skipped")


def test_supervised_steps_have_no_share_of_nothing() -> None:
    records = [{"step": step, "loss": 1.0, "overflow": 0} for step in (1, 2, 3, 4)]
    rules = Stop(correct_p_falls=0.0, correct_share_below=1.0, window=1)
    assert reason_to_stop(records, rules) is None


def test_a_rule_is_no_part_of_the_fingerprint() -> None:
    from train_helpers import train_config

    plain, ruled = train_config(), train_config(stop_if={"skipped_steps": 5})
    assert isinstance(plain, StageConfig)
    assert plain.hashed() == ruled.hashed()
    assert ruled.model_dump()["stop_if"]["skipped_steps"] == 5
    assert plain.hashed() != train_config(entropy=False).hashed()
