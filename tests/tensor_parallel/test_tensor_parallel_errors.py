"""How errors of ranks are measured: nothing that is wrong counts as right."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from losses_cases import figures_error
from rank_cases import Case, part_of_rank, relative_error

WHOLE = np.array([[1.0, 2.0], [3.0, -4.0]])


def test_an_error_is_relative_to_the_largest_number() -> None:
    assert relative_error(np.array([[1.0, 2.4]]), WHOLE[:1], WHOLE) == pytest.approx(0.1)
    assert relative_error(np.array([[1.0, np.nan]]), WHOLE[:1], WHOLE) == inf


def test_another_part_than_its_own_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"an array of \(2, 2\), expected \(1, 2\)"):
        relative_error(WHOLE, WHOLE[:1], WHOLE)


def test_parts_by_hand() -> None:
    """Ranks 0 and 1 have the first rows; ranks 0 and 2 the first part of the vocabulary."""
    case = Case(2, 2)
    assert [part_of_rank(case, rank, WHOLE, "data")[0, 0] for rank in range(4)] == [1, 1, 3, 3]
    assert [part_of_rank(case, rank, WHOLE, "tensor")[0, 0] for rank in range(4)] == [1, 3, 1, 3]


def test_a_small_column_of_figures_counts_as_much_as_a_large_one() -> None:
    whole = np.array([[100.0, 0.1, 0.0], [50.0, 0.2, 0.0]])
    assert figures_error(whole + [0, 0.02, 0], whole) == pytest.approx(0.1)
    assert figures_error(whole + [0, 0, 0.3], whole) == pytest.approx(0.3)
