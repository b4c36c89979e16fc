"""Ranks of a step cost alike, and a step's rows stay its rows."""

from __future__ import annotations

import numpy as np
import pytest

from pcl_reasoner.pack.balance import attention_cost, balance, imbalance


def test_cost_is_the_sum_of_squared_segment_lengths() -> None:
    assert attention_cost([[3, 5], [8], [1, 2, 3]]).tolist() == [9 + 4, 64, 3]


def test_by_hand() -> None:
    order, costs = np.arange(4), np.array([9, 1, 8, 2])
    # 9 to rank 0, 8 to rank 1, 2 to rank 1 (8 < 9), 1 to rank 0: 10 and 10 instead of 17 and 3.
    found = balance(order, costs, 2, 4)
    assert found.tolist() == [0, 2, 1, 3]
    assert imbalance(order, costs, 2, 4) == 17 / 10
    assert imbalance(found, costs, 2, 4) == 1.0
    assert order.tolist() == [0, 1, 2, 3]


def test_costs_are_those_of_the_rows_not_of_the_places() -> None:
    found = balance(np.array([3, 2, 1, 0]), np.array([9, 1, 8, 2]), 2, 4)
    ranks = {frozenset(found[0::2].tolist()), frozenset(found[1::2].tolist())}
    assert ranks == {frozenset({0, 1}), frozenset({2, 3})}


def test_ranks_have_equally_many_rows_even_where_one_row_costs_more_than_all_others() -> None:
    found = balance(np.arange(4), np.array([1, 1, 100, 1]), 2, 4)
    assert sorted(found.tolist()) == [0, 1, 2, 3]


def test_a_batch_that_is_even_already_is_left_alone() -> None:
    # Longest first gives 3 + 2 + 2 and 3 + 2 + 0 for rows that stand at 6 and 6.
    order, costs = np.arange(6), np.array([3, 2, 3, 2, 0, 2])
    assert balance(order, costs, 2, 6).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(10))
def test_steps_keep_their_rows_and_no_step_gets_slower(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order, costs = rng.permutation(96), rng.integers(1, 1000, 96) ** 2
    found = balance(order, costs, 4, 16)
    for step in range(0, 96, 16):
        before, after = order[step : step + 16], found[step : step + 16]
        assert sorted(before) == sorted(after)
        ranks_before = [costs[before[rank::4]].sum() for rank in range(4)]
        ranks_after = [costs[after[rank::4]].sum() for rank in range(4)]
        assert max(ranks_after) <= max(ranks_before)
    assert imbalance(found, costs, 4, 16) < 1.1 < imbalance(order, costs, 4, 16)


@pytest.mark.parametrize(("rows", "ranks", "size"), [(8, 3, 4), (7, 2, 4)])
def test_what_does_not_divide_is_refused(rows: int, ranks: int, size: int) -> None:
    with pytest.raises(ValueError, match="divide without remainder"):
        balance(np.arange(rows), np.ones(rows, np.int64), ranks, size)
