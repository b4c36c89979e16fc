"""The end of training, by hand: slopes per problem, their mean, and its error over problems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.rounds.plateau import Accuracy, Fit, Plateau, accuracy_by_kind, decide

RULES = Plateau(window=6)
# The deviations of rounds 0, 5 … 25 from their mean are ±2.5, ±7.5, ±12.5; their squares sum to
# 437.5. One response more of 8 in the last probe is a slope of 12.5 · 0.125 / 437.5 = 1/280 per
# round, so a gain of 25/280 over the window.
STEP = 25 / 280
FLAT, UP, DOWN = [4] * 6, [4] * 5 + [5], [5] + [4] * 5


def probes(
    problems: Sequence[Sequence[float]], rounds: Sequence[int] = range(0, 30, 5), n: int = 8
) -> list[dict[str, Any]]:
    """Lines of probe.jsonl from each problem's numbers of correct responses, probe by probe."""
    kinds = ["math", "code", "chat"] * len(problems)
    return [
        {"round": one, "n": n, "kinds": kinds[: len(problems)], "correct": list(correct)}
        for one, correct in zip(rounds, zip(*problems, strict=True), strict=True)
    ]


def test_a_rising_accuracy_continues_training() -> None:
    # .50 .60 .70 .75 .76 .76 on average: the sum of x·y is 4.575.
    curve = [50, 60, 70, 75, 76, 76]
    found = decide(probes([[one - 20 for one in curve], [one + 20 for one in curve]], n=100), RULES)
    assert found.slope == pytest.approx(4.575 / 437.5)
    assert (found.gain, found.se) == (pytest.approx(25 * 4.575 / 437.5), pytest.approx(0))
    # The mean accuracy is 4.07 / 6, at the mean round 12.5.
    assert found.intercept == pytest.approx(4.07 / 6 - 12.5 * 4.575 / 437.5)
    assert (found.rounds, found.stop) == ((0, 5, 10, 15, 20, 25), False)


def test_a_constant_accuracy_ends_it_if_the_error_is_small() -> None:
    # Gains of ±STEP: the mean is 0, the squares sum to 4 STEP².
    many = decide(probes([UP, UP, DOWN, DOWN, *[FLAT] * 96]), RULES)
    assert many.gain == pytest.approx(0, abs=1e-12)
    assert many.se == pytest.approx(STEP * math.sqrt(4 / 99 / 100))  # 0.0018
    assert many.stop
    few = decide(probes([UP, UP, DOWN, DOWN]), RULES)
    assert few.se == pytest.approx(STEP * math.sqrt(4 / 3 / 4))  # 0.052: noise alone ends nothing
    assert (few.gain, few.stop) == (pytest.approx(0, abs=1e-12), False)


def test_the_limit_is_of_the_gain_plus_its_error() -> None:
    # One of 20 problems rises: gain STEP / 20 = 0.00446, and its error is the same.
    curves = probes([UP, *[FLAT] * 19])
    found = decide(curves, RULES)
    assert (found.gain, found.se) == (pytest.approx(STEP / 20), pytest.approx(STEP / 20))
    for limit, ends in ((0.0089, False), (0.009, True)):
        assert decide(curves, Plateau(window=6, min_gain=limit)).stop is ends
    assert found.stop
    assert not decide(curves, Plateau(window=6, min_gain=0.0)).stop


def test_a_falling_accuracy_ends_training() -> None:
    found = decide(probes([DOWN] * 6), RULES)
    assert (found.gain, found.se, found.stop) == (pytest.approx(-STEP), pytest.approx(0), True)


def test_problems_at_their_limit_have_no_error_and_end_training() -> None:
    assert decide(probes([[8] * 6, [0] * 6]), RULES) == Fit(
        (0, 5, 10, 15, 20, 25), 0.0, 0.0, 0.5, 0.0, True
    )


def test_only_the_last_probes_count_and_their_rounds_may_be_uneven() -> None:
    # Rounds 30, 33, 39: deviations −4, −1, 5 with squares 42; accuracies 0.1, 0.2, 0.8.
    lines = probes([[9, 0, 1, 2, 8]] * 2, rounds=(0, 5, 30, 33, 39), n=10)
    found = decide(lines, Plateau(window=3))
    assert found.rounds == (30, 33, 39)
    assert found.slope == pytest.approx(3.4 / 42)
    assert found.gain == pytest.approx(9 * 3.4 / 42)
    assert found.intercept == pytest.approx(1.1 / 3 - 34 * 3.4 / 42)


def test_training_does_not_end_before_its_least_rounds_or_a_full_window() -> None:
    flat = probes([FLAT] * 2)
    assert decide(flat, Plateau(window=6, min_rounds=25)).stop
    early = decide(flat, Plateau(window=6, min_rounds=26))
    assert (early.gain, early.stop) == (0.0, False)
    for count in range(6):
        assert decide(flat[:count], Plateau(window=6, min_rounds=0)) == Fit()
    assert decide(flat[:5], Plateau(window=5)).stop


def test_one_problem_has_a_gain_but_no_error_and_never_ends_training() -> None:
    found = decide(probes([FLAT]), RULES)
    assert (found.gain, found.se, found.stop) == (0.0, None, False)


def test_a_nan_in_the_window_is_no_fit() -> None:
    broken = probes([[*FLAT, 4], [math.nan, *FLAT]], rounds=range(0, 35, 5))
    assert decide(broken[:6], RULES) == Fit()
    assert decide(broken, RULES).stop  # the window has passed it


def test_probes_of_other_problems_are_refused() -> None:
    lines = probes([FLAT] * 2)
    more = {**lines[3], "kinds": ["math", "code", "math"], "correct": [4, 4, 4]}
    with pytest.raises(StageError, match="rounds 10 and 15 have 2 and 3 problems"):
        decide([*lines[:3], more, *lines[4:]], RULES)
    with pytest.raises(StageError, match="rounds 20 and 25 have 2 and 2 .* kinds differ"):
        decide([*lines[:5], {**lines[5], "kinds": ["code", "math"]}], RULES)


def test_a_repeated_round_is_refused() -> None:
    lines = probes([FLAT] * 2)
    with pytest.raises(StageError, match="probes of rounds 25 and 25 follow each other"):
        decide([*lines, lines[-1]], RULES)


@pytest.mark.parametrize("correct", [[4, 9], [-1, 4], [4], []])
def test_malformed_numbers_of_correct_responses_are_refused(correct: list[int]) -> None:
    lines = probes([FLAT] * 2)
    lines[2]["correct"] = correct
    with pytest.raises(StageError, match="the probe of round 10 has"):
        decide(lines, RULES)


def test_accuracy_by_kind_has_an_error_over_problems() -> None:
    probe = {
        "round": 5,
        "n": 8,
        "kinds": ["math", "code", "math", "chat", "math"],
        "correct": [2, 8, 4, 3, 6],
    }
    found = accuracy_by_kind(probe)
    assert list(found) == ["chat", "code", "math"]
    # 1/4, 1/2, 3/4: the standard deviation is 1/4.
    assert found["math"] == Accuracy(3, 0.5, pytest.approx(0.25 / math.sqrt(3)))
    assert (found["code"], found["chat"]) == (Accuracy(1, 1.0, None), Accuracy(1, 0.375, None))


@pytest.mark.parametrize("wrong", [{"window": 1}, {"min_gain": 1.5}, {"patience": 3}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Plateau.model_validate(wrong)
