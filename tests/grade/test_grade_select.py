"""Rewards: joined by key, float32, never made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.rewards import Rewards, advantages, pass_rates, read_rewards
from pcl_reasoner.grade.select import drop_reason, shuffled

KEYS = [("a", 0), ("a", 1), ("b", 0)]


def read(folder: Path, keys: list[Key], rewards: list[float | None]) -> dict[Key, float]:
    problems, indices = zip(*keys, strict=True)
    columns = {"problem_id": problems, "sample_index": indices, "reward": rewards}
    pq.write_table(pa.table(columns), folder / "verdicts.parquet")
    return read_rewards(folder / "verdicts.parquet")


def test_fractions_stay_fractions(tmp_path: Path) -> None:
    # Defect 7: cast to an integer, a quarter would be 0.
    rewards = Rewards(read(tmp_path, KEYS, [0.25, 1.0, 0.0]))
    found = rewards.join([("b", 0), ("a", 0)], "r")["reward"]
    assert found.dtype == np.float32
    assert found.tolist() == [0.0, 0.25]


def test_a_missing_reward_is_an_error_and_not_a_zero(tmp_path: Path) -> None:
    rewards = Rewards(read(tmp_path, KEYS[:2], [1.0, 0.0]))
    with pytest.raises(StageError, match="1 of 3 responses have no verdict .first: b/0"):
        rewards.join(KEYS, "r")


@pytest.mark.parametrize("reward", [None, float("nan"), -0.1, 1.5])
def test_rewards_out_of_range_are_errors(tmp_path: Path, reward: float | None) -> None:
    with pytest.raises(StageError, match="response 1 of problem a: the reward must be in"):
        read(tmp_path, KEYS, [1.0, reward, 0.0])


def test_two_verdicts_on_one_response_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="two verdicts on response 0 of problem a"):
        read(tmp_path, [("a", 0), ("a", 0)], [1.0, 1.0])


def test_pass_rate_is_the_mean_of_the_group() -> None:
    rewards = {("a", 0): 1.0, ("a", 1): 0.0, ("a", 2): 0.0, ("a", 3): 1.0, ("b", 0): 0.25}
    assert pass_rates(rewards) == {"a": 0.5, "b": 0.25}


def test_advantages_by_hand() -> None:
    # 1, 0, 0, 0: mean 1/4, deviation sqrt(3/16). 1/4, 3/4: mean 1/2, deviation 1/4.
    rewards = {("a", 0): 1.0, ("a", 1): 0.0, ("a", 2): 0.0, ("a", 3): 0.0}
    found = advantages(rewards | {("b", 0): 0.25, ("b", 1): 0.75})
    assert found["a", 0] == pytest.approx(3**0.5)
    assert [found["a", i] for i in (1, 2, 3)] == pytest.approx([-(3**-0.5)] * 3)
    assert (found["b", 0], found["b", 1]) == pytest.approx((-1.0, 1.0))


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1])
def test_equal_rewards_have_no_advantage(reward: float) -> None:
    # Three times 0.1 has a mean of 0.10000000000000002, and a deviation that is not 0.
    rewards = {("a", index): reward for index in range(3)}
    assert list(advantages({**rewards, ("alone", 0): reward}).values()) == [0.0] * 4


def test_drop_reasons() -> None:
    assert drop_reason(0.0, 5, "both", None) == "all_incorrect_group"
    assert drop_reason(1.0, 5, "both", None) == "all_correct_group"
    assert drop_reason(0.0, 5, "all_incorrect", None) == "all_incorrect_group"
    assert drop_reason(1.0, 5, "all_incorrect", None) is None
    assert drop_reason(0.0, 5, "none", None) is None
    assert drop_reason(0.5, 5, "both", 5) is None
    assert drop_reason(0.5, 6, "both", 5) == "over_length"
    # The group is what decides first: its responses are counted under one reason.
    assert drop_reason(0.0, 6, "both", 5) == "all_incorrect_group"


def test_shuffled_rewards_move_among_mixed_groups_only() -> None:
    """20 mixed groups with one correct of 4, one all correct, one all incorrect: 20 ones stay 20
    ones."""
    rewards = {(f"p{i:02d}", j): float(j == 0) for i in range(20) for j in range(4)}
    rewards |= {("correct", j): 1.0 for j in range(4)} | {("incorrect", j): 0.0 for j in range(4)}
    moved = shuffled(rewards, seed=3)
    assert sum(moved[key] for key in rewards if key[0].startswith("p")) == 20
    assert all(moved["correct", j] == 1.0 and moved["incorrect", j] == 0.0 for j in range(4))
    assert sum(moved[key] != reward for key, reward in rewards.items()) >= 10
    assert moved == shuffled(rewards, seed=3)
    assert moved != shuffled(rewards, seed=4)
