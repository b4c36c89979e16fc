"""The tests of a problem are read, or refused with the first reason."""

from __future__ import annotations

from typing import Any

import pytest

from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.test_cases import (
    literal_call,
    needs_one_interpreter,
    read_test_cases,
)

STDIN = {"input": "3\n", "output": "6\n"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"format": "stdin", "cases": []}, "cases: "),
        ({"format": "spec", "cases": [STDIN]}, "format: "),
        ({"format": "stdin", "cases": [STDIN], "rows": 1}, "rows: "),
        ({"format": "stdin", "cases": [STDIN, {"input": "3"}]}, "case 1: expected an object with"),
        ({"format": "stdin", "cases": [{"input": 3, "output": ""}]}, "case 0: input is no text"),
        ({"format": "functional", "cases": [{"args": [], "out": 1}]}, "entry is None"),
        ({"format": "functional", "entry": "f(", "cases": [{"args": [], "out": 1}]}, "entry is 'f"),
        ({"format": "functional", "entry": "f", "cases": [{"args": 3, "out": 1}]}, "args is 3"),
        ({"format": "assert", "cases": ["assert f("]}, "case 0: is no Python code: "),
        ({"format": "pytest", "cases": [3]}, "case 0: expected Python code, got 3"),
        ({"format": "assert", "language": "cpp", "cases": ["x"]}, "C.. is tested by stdin"),
        ({"format": "stdin", "cases": [STDIN], "seconds": -1}, "seconds: "),
        ("text", "tests: "),
    ],
)
def test_tests_of_another_form_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_test_cases(value)


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("assert f(3) == 6", ("f", [3], 6)),
        ("assert f(-1, [2], {'a': (1,)}) == {3}", ("f", [-1, [2], {"a": (1,)}], {3})),
        ("assert f() == None, 'why'", ("f", [], None)),
        ("assert f(3)", None),
        ("assert f(3) is None", None),
        ("assert f(x) == 6", None),
        ("assert f(g(3)) == 6", None),
        ("assert 6 == f(3)", None),
        ("assert f(3) == g(6)", None),
        ("assert f(x=3) == 6", None),
        ("assert s.f(3) == 6", None),
        ("assert f(3) == 6 == 6", None),
        ("y = 1\nassert f(3) == 6", None),
        ("f(3) == 6", None),
        ("assert f(", None),
    ],
)
def test_an_assert_with_a_literal_is_a_call(statement: str, call: Any) -> None:
    assert literal_call(statement) == call


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("from solution import f\nassert f(3) == 6", False),
        ("import solution\nassert solution.f(3) == 6", False),
        ("from solution import S\nclass TestS:\n    def test(self): S()", False),
        ("from solution import S\nclass T(S): pass", True),
        ("import inspect, solution", True),
        ("from unittest.mock import patch", True),
        ("import unittest.mock", True),
        ("def test(capsys): pass", True),
        ("def test(monkeypatch): pass", True),
        ("from solution import *\nassert f(3) == 6", True),
        ("assert f(3) == 'inspect'", False),
    ],
)
def test_which_tests_need_the_candidates_interpreter(code: str, needed: bool) -> None:
    assert needs_one_interpreter(code) is needed


@pytest.mark.parametrize(
    ("language", "own", "expected"),
    [
        ("python", {}, (6.0, 512)),
        ("python", {"seconds": 1.0, "megabytes": 256}, (6.0, 512)),
        ("python", {"seconds": 10.0, "megabytes": 1024}, (10.0, 1024)),
        ("python", {"seconds": 50.0, "megabytes": 8192}, (30.0, 4096)),
        ("cpp", {}, (6.0, 512)),
        ("cpp", {"seconds": 1.0, "megabytes": 256}, (1.0, 256)),
        ("cpp", {"seconds": 50.0, "megabytes": 8192}, (30.0, 4096)),
    ],
)
def test_a_problems_own_limits(
    language: str, own: dict[str, Any], expected: tuple[float, int]
) -> None:
    tests = read_test_cases({"format": "stdin", "language": language, "cases": [STDIN], **own})
    found = tests.limited(Limits(seconds=6.0, megabytes=512))
    assert (found.seconds, found.megabytes) == expected


def test_the_stages_limits_can_be_larger_than_any_problems() -> None:
    tests = read_test_cases({"format": "stdin", "cases": [STDIN], "seconds": 50.0})
    assert tests.limited(Limits(seconds=60.0)).seconds == 60.0
    # A checker is a program in Python, whatever the candidate's language.
    cpp = tests.model_copy(update={"language": "cpp", "seconds": 1.0})
    assert cpp.limited(Limits(seconds=6.0), "python").seconds == 6.0
