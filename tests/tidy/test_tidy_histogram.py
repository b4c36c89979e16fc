"""Histograms by hand."""

from __future__ import annotations

import json
from array import array

import pytest

from pcl_reasoner.tidy.histogram import histogram


def test_values_are_counted_between_edges() -> None:
    values = array("d", [1.0, 1.0, 1.2, 2.0, 3.9, 4.0, float("nan")])
    found = histogram(values, 20.0, (1.0,))
    # 2^(1/4) = 1.189207, 2^(1/2) = 1.414214, 2^(3/4) = 1.681793.
    assert found["edges"][:5] == [1.0, 1.189207, 1.414214, 1.681793, 2.0]
    assert found["edges"][8] == 4.0
    assert len(found["edges"]) == 10
    assert found["counts"] == [2, 1, 0, 0, 1, 0, 0, 1, 1]
    assert (found["limit"], found["missing"]) == (20.0, 1)
    # Of 1, 1, 1.2, 2, 3.9, 4: the middle is between 1.2 and 2.
    assert found["quantiles"]["0.5"] == pytest.approx(1.6)
    assert found["quantiles"]["1.0"] == 4.0


def test_whole_numbers_have_bins_of_their_own_first() -> None:
    found = histogram(array("d", [1, 1, 3, 4, 4, 8, 9, 10]), 4, (1.0, 2.0, 3.0, 4.0, 5.0, 8.0))
    assert found["edges"] == [1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.513657, 11.313708]
    assert found["counts"] == [2, 0, 1, 2, 0, 2, 1]


def test_infinite_and_too_small_values_are_counted_too() -> None:
    found = histogram(array("d", [0.9999, float("inf"), 5.0]), None, (1.0,))
    assert sum(found["counts"]) == 3
    assert (found["counts"][0], found["counts"][-1]) == (1, 1)
    assert found["edges"][-2] <= 1e9 < found["edges"][-1]
    json.dumps(found, allow_nan=False)


def test_nothing_is_a_histogram_too() -> None:
    assert histogram(array("d"), None, (0.0, 64.0)) == {
        "edges": [0.0, 64.0],
        "counts": [0],
        "limit": None,
        "missing": 0,
        "quantiles": {},
    }
    found = histogram(array("d", [float("nan")]), None, (1.0,))
    assert (found["missing"], sum(found["counts"])) == (1, 0)
