"""Which segments share a row."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pcl_reasoner.pack.fill import best_fit_decreasing, row_count
from pcl_reasoner.pack.packing import RowPlan, Rows, accounting, next_fit_rows, plan_rows


def best_fit(lengths: np.ndarray, seq_length: int, places: int) -> int:
    histogram = np.bincount(lengths, minlength=seq_length + 1)
    return row_count(best_fit_decreasing(histogram, seq_length, places))


def lengths_of(seed: int, number: int, low: int, high: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high + 1, number)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("low", "high", "places"), [(1, 100, 128), (1, 9, 5), (40, 60, 128)])
def test_every_segment_once_no_row_too_long_or_too_full(
    seed: int, low: int, high: int, places: int
) -> None:
    lengths = lengths_of(seed, 300, low, high)
    plan = plan_rows(lengths, 100, places, seed=1)
    assert sorted(index for row in plan.rows for index in row) == list(range(300))
    assert max(int(lengths[row].sum()) for row in plan.rows) <= 100
    assert max(len(row) for row in plan.rows) <= places
    assert len(plan.rows) <= best_fit(lengths, 100, places)


def test_never_more_segments_than_the_mask_has_places() -> None:
    # Defect 6: 300 segments of one token would all go into one row.
    plan = plan_rows(np.ones(300, np.int64), 1000, 128, seed=0)
    assert sorted(len(row) for row in plan.rows) == [44, 128, 128]


def test_rows_are_closed_exactly() -> None:
    # Best fit puts 4 beside 5, then 3 + 3 + 3, and the 2 is left; 5 + 3 + 2 and 4 + 3 + 3 are full.
    assert best_fit(np.array([4, 5, 3, 3, 3, 2]), 10, 128) == 3
    plan = plan_rows(np.array([4, 5, 3, 3, 3, 2]), 10, 128, seed=0)
    assert [sum([4, 5, 3, 3, 3, 2][i] for i in row) for row in plan.rows] == [10, 10]


def test_large_sets_are_full() -> None:
    draws = np.random.default_rng(0).lognormal(8.5, 0.75, 5000).astype(np.int64)
    lengths = np.clip(draws, 50, 32768)
    rows = plan_rows(lengths, 32768, 128, seed=0).rows
    assert len(rows) - math.ceil(lengths.sum() / 32768) <= 1


def test_rows_are_shuffled_by_the_seed_alone() -> None:
    lengths = lengths_of(0, 200, 1, 100)
    first, again = plan_rows(lengths, 100, 128, seed=1), plan_rows(lengths, 100, 128, seed=1)
    other = plan_rows(lengths, 100, 128, seed=2)
    rows = [[row.tolist() for row in plan.rows] for plan in (first, again, other)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]
    assert sorted(rows[0]) == sorted(rows[2])
    longest = [int(lengths[row].max()) for row in first.rows]
    assert longest != sorted(longest, reverse=True)


def test_rows_in_two_arrays() -> None:
    rows = Rows(np.array([4, 0, 2, 1, 3]), np.array([0, 2, 3, 5]))
    assert [row.tolist() for row in rows] == [[4, 0], [2], [1, 3]]
    assert (len(rows), rows.sizes().tolist()) == (3, [2, 1, 2])
    moved = rows.in_order(np.array([2, 0, 1]))
    assert [row.tolist() for row in moved] == [[1, 3], [4, 0], [2]]


def test_equal_lengths_are_used_in_file_order() -> None:
    plan = plan_rows(np.array([2, 3, 2, 3, 2, 3]), 5, 128, seed=0)
    assert sorted(sorted(row.tolist()) for row in plan.rows) == [[0, 1], [2, 3], [4, 5]]
    # More than 16 bits; 70 000 and 135 536 are the same in the lower ones.
    lengths = np.array([70_000, 70_001, 70_000, 135_535, 135_536, 135_536])
    plan = plan_rows(lengths, 205_536, 128, seed=0)
    assert sorted(sorted(row.tolist()) for row in plan.rows) == [[0, 4], [1, 3], [2, 5]]


def test_one_a_row() -> None:
    plan = plan_rows(np.array([3, 4, 5]), 10, 128, seed=0, one_segment_per_row=True)
    assert sorted(row.tolist() for row in plan.rows) == [[0], [1], [2]]


def test_next_fit_counts_rows_in_file_order() -> None:
    assert next_fit_rows([6, 6, 4, 4], 10, 128) == 3
    assert next_fit_rows([1] * 7, 10, 3) == 3
    assert next_fit_rows([], 10, 3) == 0


def test_accounting() -> None:
    plan = RowPlan(Rows(np.array([0, 2, 1, 3]), np.array([0, 2, 4])), np.array([6, 6, 4, 4]), 10)
    assert accounting(plan, 128) == {
        "rows": 2,
        "seq_length": 10,
        "segments": 4,
        "tokens": 20,
        "fill": 1.0,
        "segments_per_row": {"2": 2},
        "rows_next_fit": 3,
        "rows_saved": 1,
        "rows_bound": 2,
        "rows_over_bound": 0,
        "steps_per_epoch": {"1": 2, "8": 1, "32": 1, "128": 1},
        "steps_per_epoch_next_fit": {"1": 3, "8": 1, "32": 1, "128": 1},
    }
