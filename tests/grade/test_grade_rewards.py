"""Advantages of one group by hand: what an overlong response counts, with and without deviation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.grade.rewards import checked_reward, group_advantages

REWARDS = [1.0, 0.0, 1.0, 1.0]
"""The last response is overlong, and its answer is right all the same."""
OVERLONG = [False, False, False, True]
# zero and wrong compare 1 0 1 0: mean 1/2, deviation 1/2. masked compares 1 0 1: mean 2/3,
# deviation sqrt(2)/3.
TABLE: dict[tuple[str, str], tuple[list[float], list[bool]]] = {
    ("zero", "std"): ([1, -1, 1, 0], [True] * 4),
    ("zero", "none"): ([1 / 2, -1 / 2, 1 / 2, 0], [True] * 4),
    ("masked", "std"): ([2**-0.5, -(2**0.5), 2**-0.5, 0], [True] * 3 + [False]),
    ("masked", "none"): ([1 / 3, -2 / 3, 1 / 3, 0], [True] * 3 + [False]),
    ("wrong", "std"): ([1, -1, 1, -1], [True] * 4),
    ("wrong", "none"): ([1 / 2, -1 / 2, 1 / 2, -1 / 2], [True] * 4),
}


def found(
    rewards: list[float], overlong: list[bool], rule: Any, normalise: Any
) -> tuple[list[float], list[bool]]:
    given = np.array(rewards, np.float64), np.array(overlong)
    advantages, averaged = group_advantages(*given, rule, normalise)
    return advantages.tolist(), averaged.tolist()


@pytest.mark.parametrize(("rule", "normalise"), TABLE)
def test_an_overlong_response_by_hand(rule: str, normalise: str) -> None:
    advantages, averaged = TABLE[rule, normalise]
    got = found(REWARDS, OVERLONG, rule, normalise)
    assert got == (pytest.approx(advantages), averaged)


@pytest.mark.parametrize("rule", ["zero", "masked", "wrong"])
def test_without_overlong_responses_the_rules_agree(rule: str) -> None:
    # 0, 1/4, 1: mean 5/12, squares 25 + 4 + 49 = 78 of 144, deviation sqrt(26)/12.
    for normalise, spread in (("std", math.sqrt(26) / 12), ("none", 1.0)):
        advantages, averaged = found([0.0, 0.25, 1.0], [False] * 3, rule, normalise)
        assert advantages == pytest.approx([-5 / 12 / spread, -2 / 12 / spread, 7 / 12 / spread])
        assert averaged == [True] * 3


@pytest.mark.parametrize("normalise", ["std", "none"])
def test_equal_rewards_have_no_advantage(normalise: str) -> None:
    # Three times 0.1 has a mean of 0.10000000000000002.
    for reward in (0.0, 0.1, 1.0):
        assert found([reward] * 3, [False] * 3, "zero", normalise)[0] == [0.0] * 3
    # Overlong responses make rewards equal or different: 1 1 and an overlong 1.
    assert found([1.0] * 3, [False, False, True], "masked", normalise)[0] == [0.0] * 3
    assert found([1.0] * 3, [False, False, True], "zero", normalise)[0] == pytest.approx(
        [2**-0.5, 2**-0.5, 0.0] if normalise == "std" else [1 / 3, 1 / 3, 0.0]
    )


def test_a_group_of_overlong_responses_has_no_advantage() -> None:
    for rule, averaged in (("zero", True), ("masked", False), ("wrong", True)):
        assert found([1.0, 0.0], [True, True], rule, "std") == ([0.0, 0.0], [averaged] * 2)


def test_one_finished_response_is_compared_with_nothing() -> None:
    assert found([1.0, 1.0], [False, True], "masked", "std") == ([0.0, 0.0], [True, False])


@pytest.mark.parametrize("reward", [None, math.nan, math.inf, -0.1, 1.5])
def test_a_reward_that_is_no_share_is_refused(reward: float | None) -> None:
    with pytest.raises(
        StageError, match=r"round 3, response 1 of problem a: the reward must be in"
    ):
        checked_reward(reward, "round 3, response 1 of problem a")


def test_shares_from_0_to_1_are_rewards() -> None:
    assert [checked_reward(one, "r") for one in (0.0, 0.25, 1.0)] == [0.0, 0.25, 1.0]
