"""The bound is a bound, and where it can be worked by hand it is that number."""

from __future__ import annotations

import numpy as np
import pytest

from pcl_reasoner.pack.bound import least_rows
from pcl_reasoner.pack.fill import exact_fill, row_count


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        ([7, 7, 4], 3),  # 18 tokens, but nothing shares a row with a 7 except 3 or less
        ([9, 9, 1, 1], 2),
        ([9, 9, 3], 3),  # a = 3: two 9s alone, and the 3 needs a row; 21 tokens say 3 as well
        ([9, 9, 9, 2], 4),  # 29 tokens say 3; a = 2: no 2 beside a 9
        ([6, 6, 4, 4], 2),  # the 4s fit exactly beside the 6s
        ([6, 6, 5, 5, 5], 4),  # a = 5: the 6s alone, then 15 tokens in two rows; 27 tokens say 3
        ([5, 5, 5], 2),  # half a row is not more than half
        ([10], 1),
        ([], 0),
    ],
)
def test_by_hand(lengths: list[int], rows: int) -> None:
    assert least_rows(np.array(lengths, np.int64), 10) == rows


@pytest.mark.parametrize("seq_length", [10, 11, 100])
@pytest.mark.parametrize("seed", range(10))
def test_no_packing_is_below_it_and_it_is_not_below_the_tokens(seed: int, seq_length: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, seq_length + 1, 60)
    bound = least_rows(lengths, seq_length)
    assert -(-int(lengths.sum()) // seq_length) <= bound
    histogram = np.bincount(lengths, minlength=seq_length + 1)
    assert bound <= row_count(exact_fill(histogram, seq_length, 128))


def test_room_that_nothing_fills_does_not_lower_it() -> None:
    # Each 6 stands alone in 11; the 15 tokens of room are more than a row, and no row less.
    assert least_rows(np.array([6, 6, 6]), 11) == 3
