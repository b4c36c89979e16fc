"""Rows of lengths: exact closings, many alike at once, and what is left in the end."""

from __future__ import annotations

import numpy as np
import pytest
from pack_helpers import log_normal

from pcl_reasoner.pack.bound import least_rows
from pcl_reasoner.pack.fill import (
    FILL_STRATEGIES,
    FillStrategy,
    Pattern,
    best_fit_decreasing,
    exact_fill,
    fewest_rows,
    row_count,
)


def histogram(lengths: list[int], seq_length: int) -> np.ndarray:
    return np.bincount(np.array(lengths, np.int64), minlength=seq_length + 1)


def rows_of(patterns: list[Pattern]) -> list[list[int]]:
    return [row for row, times in patterns for _ in range(times)]


def test_single_pair_and_triple_closings() -> None:
    def filled(lengths: list[int], seq_length: int, max_segments: int) -> list[list[int]]:
        return rows_of(exact_fill(histogram(lengths, seq_length), seq_length, max_segments))

    assert filled([7, 3, 2], 10, 128) == [[7, 3], [2]]
    assert filled([6, 2, 2], 10, 128) == [[6, 2, 2]]
    assert filled([6, 5, 2], 10, 128) == [[6, 2], [5]]
    assert filled([70, 10, 10, 10], 100, 128) == [[70, 10, 10, 10]]
    assert filled([70, 10, 10, 10], 100, 3) == [[70, 10, 10], [10]]
    assert filled([100], 100, 1) == [[100]]
    assert filled([], 100, 1) == []


def test_a_pair_is_as_equal_as_can_be_and_never_one_segment_twice() -> None:
    # 12 is 6 + 6 only where there are two; then 7 + 5, before 9 + 3.
    patterns = exact_fill(histogram([28, 9, 7, 6, 5, 3], 40), 40, 128)
    assert patterns[0] == ([28, 7, 5], 1)
    patterns = exact_fill(histogram([28, 9, 7, 6, 6, 5, 3], 40), 40, 128)
    assert patterns[0] == ([28, 6, 6], 1)
    # 18 is 6 + 6 + 6 only where there are three: with two it is 7 + 6 + 5.
    patterns = exact_fill(histogram([22, 7, 6, 6, 5], 40), 40, 128)
    assert patterns[0] == ([22, 7, 5, 6], 1)
    patterns = exact_fill(histogram([22, 7, 6, 6, 6, 5], 40), 40, 128)
    assert patterns[0] == ([22, 6, 6, 6], 1)


def test_a_row_is_taken_as_often_as_its_lengths_last() -> None:
    assert exact_fill(histogram([700, 300, 700, 300, 700], 1000), 1000, 128) == [
        ([700, 300], 2),
        ([700], 1),
    ]
    # A row of two 500 uses two of five at a time.
    assert exact_fill(histogram([500] * 5, 1000), 1000, 128) == [([500, 500], 2), ([500], 1)]


def test_slack_closes_a_row_with_one_that_is_a_little_short() -> None:
    # 40 is 20 + 20; with a slack of 2 the 38 does, and the 20s are left for others.
    given = histogram([60, 38, 20, 20], 100)
    assert exact_fill(given, 100, 128)[0] == ([60, 20, 20], 1)
    assert exact_fill(given, 100, 128, FillStrategy(slack=0.02))[0] == ([60, 38], 1)
    assert exact_fill(given, 100, 128, FillStrategy(slack=0.01))[0] == ([60, 20, 20], 1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("places", [3, 128])
def test_what_is_packed_is_what_was_given(seed: int, places: int) -> None:
    # The square makes short ones many, so that all phases have some.
    lengths = (np.random.default_rng(seed).random(400) ** 2 * 60 + 1).astype(int).tolist()
    given = histogram(lengths, 100)
    strategies = (*FILL_STRATEGIES, FillStrategy(drawn_rows=0), FillStrategy(slack=0.05))
    packed = [exact_fill(given, 100, places, strategy) for strategy in strategies]
    for patterns in (*packed, best_fit_decreasing(given, 100, places)):
        rows = rows_of(patterns)
        assert sorted(length for row in rows for length in row) == sorted(lengths)
        assert max(sum(row) for row in rows) <= 100
        assert max(len(row) for row in rows) <= places


@pytest.mark.parametrize(
    ("number", "mean", "sigma", "seq_length"),
    [
        (48_000, 10_500, 0.75, 32_768),
        # Without lengths that are drawn in the end this one has 7 rows too many.
        (1_000_000, 12_000, 0.5, 32_768),
        # So few short ones that exact pairs alone end 349 rows above the bound.
        (48_000, 20_000, 0.75, 32_768),
        (48_000, 10_500, 0.75, 16_384),
        (200_000, 6_000, 1.0, 49_152),
        # Two thirds are longer than a third of a row: 48 rows too many unless three short ones
        # are drawn for each other.
        (48_000, 16_000, 0.5, 32_768),
    ],
)
def test_at_most_two_rows_more_than_any_packing_needs(
    number: int, mean: int, sigma: float, seq_length: int
) -> None:
    lengths = log_normal(number, mean, sigma, seq_length)
    bound = least_rows(lengths, seq_length)
    counts = histogram(lengths.tolist(), seq_length)
    patterns = fewest_rows(counts, seq_length, 128, bound)
    assert bound <= row_count(patterns) <= bound + 2
    assert patterns == fewest_rows(counts, seq_length, 128, bound)


def test_best_fit_decreasing_takes_the_tightest_row() -> None:
    # 6 and 5 open rows with room 4 and 5; the 4 goes where it fits best, then 3 and 2 beside 5.
    patterns = best_fit_decreasing(histogram([6, 5, 4, 3, 2], 10), 10, 128)
    assert patterns == [([6, 4], 1), ([5, 3, 2], 1)]


def test_best_fit_decreasing_of_many_alike() -> None:
    # Three 6s open three rows of room 4; four 2s fill two of them, the fifth goes to the third.
    assert best_fit_decreasing(histogram([6, 6, 6, 2, 2, 2, 2, 2], 10), 10, 128) == [
        ([6, 2, 2], 2),
        ([6, 2], 1),
    ]
    # With two places a row takes one of them, and the last two open a row.
    assert best_fit_decreasing(histogram([6, 6, 6, 2, 2, 2, 2, 2], 10), 10, 2) == [
        ([6, 2], 3),
        ([2, 2], 1),
    ]


def one_by_one(lengths: list[int], seq_length: int, places: int) -> int:
    """Best-fit decreasing by the book."""
    rows: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        fitting = [row for row in rows if sum(row) + length <= seq_length and len(row) < places]
        if fitting:
            max(fitting, key=sum).append(length)
        else:
            rows.append([length])
    return len(rows)


@pytest.mark.parametrize("seed", range(20))
def test_best_fit_decreasing_is_that_of_one_segment_at_a_time(seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 40, 150).tolist()
    patterns = best_fit_decreasing(histogram(lengths, 50), 50, 128)
    assert row_count(patterns) == one_by_one(lengths, 50, 128)


def test_the_way_with_the_fewest_rows_is_taken() -> None:
    # 14 + 3 + 3 is full, and 13 + 4, 13 + 4, 4 follow; best fit has 13 + 4 + 3 twice and 14 + 4.
    counts = histogram([14, 13, 13, 4, 4, 4, 3, 3], 20)
    assert row_count(exact_fill(counts, 20, 128)) == 4
    patterns = fewest_rows(counts, 20, 128, bound=3)
    assert patterns == [([13, 4, 3], 2), ([14, 4], 1)]
