"""The order of rows: what every step reads, and what its loss divides by."""

from __future__ import annotations

import numpy as np

from pcl_reasoner.pack.balance import attention_cost, imbalance
from pcl_reasoner.pack.order import (
    DataOrder,
    balanced_order,
    batch_totals,
    computed_rows,
    data_order,
)


def test_the_order_is_one_shuffle_an_epoch_end_to_end() -> None:
    order = data_order(5, epochs=2, global_batch_size=2, seed=7)
    assert order.rows.tolist() == [2, 0, 4, 1, 3, 3, 0, 2, 1, 4]
    assert (order.steps, order.left_over) == (5, 0)


def test_every_epoch_has_every_row_once_in_an_order_of_its_own() -> None:
    order = data_order(40, epochs=3, global_batch_size=8, seed=0)
    epochs = order.rows.reshape(3, 40)
    assert all(sorted(epoch) == list(range(40)) for epoch in epochs.tolist())
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 3
    # The first epochs do not depend on how many follow: a longer run repeats a shorter one.
    longer = data_order(40, epochs=5, global_batch_size=8, seed=0)
    assert longer.rows[:120].tolist() == order.rows.tolist()


def test_another_seed_is_another_order() -> None:
    first, again, other = (data_order(40, 1, 8, seed).rows.tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_rows_that_fill_no_step_are_left_over() -> None:
    # 7 rows x 3 epochs = 21 = 5 steps of 4, and one.
    order = data_order(7, epochs=3, global_batch_size=4, seed=0)
    assert (order.steps, len(order.rows), order.left_over) == (5, 20, 1)
    stopped = data_order(7, epochs=3, global_batch_size=4, seed=0, max_steps=2)
    assert (stopped.steps, stopped.left_over) == (2, 13)
    assert stopped.rows.tolist() == order.rows[:8].tolist()
    assert data_order(7, 3, 4, 0, max_steps=99).steps == 5
    assert data_order(3, 1, 4, 0).steps == 0


def test_batch_totals_by_hand() -> None:
    order = DataOrder(np.array([2, 0, 1, 2, 0, 0]), global_batch_size=3, left_over=0)
    # Rows hold 5, 1 and 10: 10 + 5 + 1, then 10 + 5 + 5.
    assert batch_totals(order, np.array([5, 1, 10])).tolist() == [16, 20]


def test_balanced_order_by_hand() -> None:
    order = DataOrder(np.array([0, 1, 2, 3, 3, 1, 0, 2]), global_batch_size=4, left_over=1)
    # Squares: 9, 1, 5, 4. First step: rank 0 has 9 + 5, rank 1 has 1 + 4; then 9 + 1 and 5 + 4.
    # Second step: 4 + 9 and 1 + 5; then the same two pairs.
    balanced = balanced_order(order, [[3], [1], [2, 3], [2]], ranks=2)
    assert [sorted(balanced.rows[rank:4:2].tolist()) for rank in (0, 1)] == [[0, 1], [2, 3]]
    second = [sorted(balanced.rows[4 + rank :: 2].tolist()) for rank in (0, 1)]
    assert sorted(second) == [[0, 1], [2, 3]]
    assert (balanced.global_batch_size, balanced.left_over) == (4, 1)


def test_a_run_that_goes_on_has_the_same_balanced_order() -> None:
    ends = [[length] for length in np.random.default_rng(0).integers(1, 100, 40).tolist()]
    whole = balanced_order(data_order(40, 3, 8, seed=0), ends, 4)
    again = balanced_order(data_order(40, 3, 8, seed=0), ends, 4)
    stopped = balanced_order(data_order(40, 3, 8, seed=0, max_steps=6), ends, 4)
    assert whole.rows.tolist() == again.rows.tolist()
    assert stopped.rows.tolist() == whole.rows[:48].tolist()
    assert whole.rows.tolist() != data_order(40, 3, 8, seed=0).rows.tolist()


def test_rows_are_computed_by_other_ranks_than_load_them() -> None:
    """The docstring's example: 2 ranks, 2 micro-batches of 2 rows for each rank."""
    order = DataOrder(np.arange(8), 8, 0)
    computed = computed_rows(order, ranks=2, micro_batches=2)
    assert computed[0::2].tolist() == [0, 2, 1, 3]
    assert computed[1::2].tolist() == [4, 6, 5, 7]
    assert computed_rows(order, ranks=2, micro_batches=1).tolist() == list(range(8))


def test_balance_is_that_of_the_rows_as_computed() -> None:
    rng = np.random.default_rng(0)
    ends = [np.cumsum(rng.integers(1, 100, 4)) for _ in range(64)]
    costs = attention_cost(ends)
    order = data_order(64, 1, 32, seed=0)
    balanced = balanced_order(order, ends, 4, micro_batches=4)
    assert sorted(balanced.rows[:32].tolist()) == sorted(order.rows[:32].tolist())
    before = imbalance(computed_rows(order, 4, 4), costs, 4, 32)
    after = imbalance(computed_rows(balanced, 4, 4), costs, 4, 32)
    assert after < 1.02 < before
    # Rows that were balanced as loaded are not balanced as computed.
    as_loaded = balanced_order(order, ends, 4)
    assert imbalance(computed_rows(as_loaded, 4, 4), costs, 4, 32) > 1.05
