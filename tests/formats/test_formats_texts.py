"""Small texts by hand: starter code, fences and limits."""

from __future__ import annotations

from typing import Any

import pytest

from pcl_reasoner.formats.texts import (
    code_in,
    first_code,
    megabytes_of,
    seconds_of,
    with_starter,
)


@pytest.mark.parametrize(
    ("problem", "starter", "expected"),
    [
        ("p\n", "def f(x):\n    \n", "p\n\nStart from this code:\n\n```python\ndef f(x):\n```"),
        ("p", None, "p"),
        ("p", " \n", "p"),
        ("p def f(x): q", "def f(x):", "p def f(x): q"),
        (None, "def f(x):", None),
        (" ", "def f(x):", " "),
        ("p", 7, "p"),
    ],
)
def test_starter_code(problem: Any, starter: Any, expected: Any) -> None:
    assert with_starter(problem, starter) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("print(1)\n", "print(1)\n"),
        ("a\n```python\nprint(1)\nprint(2)\n```\nb", "print(1)\nprint(2)"),
        ("```\nx\n```\n```py\ny\n```", "y"),
        ("```python\nno end", "```python\nno end"),
        (" ", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_code_in_a_fence(text: Any, expected: str) -> None:
    assert code_in(text) == expected


def test_a_solution_in_python_2_is_passed_over() -> None:
    old, new = "n = int(raw_input())\nprint 2 * n", "print(2 * int(input()))"
    assert first_code([old, new, "x"]) == new
    assert first_code([f"```python\n{old}\n```", f"```\n{new}\n```"]) == new
    assert first_code([old]) == first_code(old) == ""
    assert first_code(["x\0", new]) == "x\0"  # refused by its own reason


def test_the_first_of_several_solutions() -> None:
    assert first_code([None, " ", "```\na\n```", "b"]) == "a"
    assert first_code([]) == first_code(None) == first_code({"a": 1}) == ""
    assert first_code("a") == "a"


@pytest.mark.parametrize(
    ("limit", "seconds", "megabytes"),
    [
        (2, 2.0, 2),
        (0.25, 0.25, 1),
        ("2.5 seconds", 2.5, None),
        ("1 s", 1.0, None),
        ("256 megabytes", None, 256),
        ("64MB", None, 64),
        ("3 minutes", None, None),
        (float("inf"), None, None),
        (0, None, None),
        (-1, None, None),
        (True, None, None),
        (None, None, None),
    ],
)
def test_limits(limit: Any, seconds: float | None, megabytes: int | None) -> None:
    assert (seconds_of(limit), megabytes_of(limit)) == (seconds, megabytes)
