"""Outputs and values that are the same, and those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from pcl_reasoner.sandbox.compare import same_output, same_value


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("6\n", "6", True),
        ("6", " 6 \n\n", True),
        ("1 2\n3", "1 2 \n 3\n", True),
        ("1 2", "1  2", True),
        ("1 2", "1\n2", False),
        ("a  b", "a b", False),
        ("YES", "Yes", False),
        ("1.50 2", "1.5 2.0", True),
        ("0.1", "0.10000000000000001", False),
        ("1e3", "1000", True),
        ("1 a", "1.0 a", False),
        ("", "", True),
        ("", "6", False),
        ("6", "", False),
        ("inf", "Infinity", False),
        ("nan", "NaN", False),
        ("1e99999", "1e99999", True),
        ("1e99999", "2e99999", False),
        ("007", "7", True),
        ("6\n6", "6", False),
        ("٣", "3", False),
    ],
)
def test_output(expected: str, found: str, same: bool) -> None:
    assert same_output(expected, found) is same


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (6, 6, True),
        (6, 6.0, True),
        (6, "6", False),
        (True, 1, True),
        (1.0, 1.0000009, True),
        (1.0, 1.0000011, False),
        (0.0, 1e-12, False),
        (1.0, 10**400, False),
        (float("inf"), float("inf"), True),
        (1.0, float("nan"), False),
        ([1, 2], (1, 2), True),
        ([1, [2.0]], [1, (2.0000001,)], True),
        ([1, 2], [1, 2, 3], False),
        ([1, 2], {1, 2}, False),
        ({"a": 1.0}, {"a": 1.0000001}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({1, 2}, {2, 1}, True),
        ([], None, False),
        (None, None, True),
        (None, 0, False),
    ],
)
def test_value(expected: Any, found: Any, same: bool) -> None:
    assert same_value(expected, found) is same
