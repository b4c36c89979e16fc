"""TACO and APPS: a JSON text of inputs and outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import cases_of, checks, read_jsonl, read_parquet, refused, row

NAMES = ("question", "solutions", "starter_code", "input_output", "difficulty", "source")
TACO = pa.schema([(name, pa.string()) for name in (*NAMES, "time_limit", "memory_limit")])


def record(tests: Any, **others: Any) -> dict[str, Any]:
    return {
        "question": "Double the number.",
        "solutions": json.dumps(["print(2 * int(input()))"]),
        "starter_code": "",
        "input_output": tests if isinstance(tests, str) else json.dumps(tests),
        "difficulty": "EASY",
        "source": "made_up",
        "time_limit": "2.0 seconds",
        "memory_limit": "256.0 megabytes",
        **others,
    }


def test_taco(tmp_path: Path) -> None:
    stdin = {"inputs": ["3\n", ["4"]], "outputs": ["6\n", "8"]}
    call = {"fn_name": "double", "inputs": [[3]], "outputs": [[6]]}
    starter = {"starter_code": "def double(n):\n\t"}
    records = [record(stdin), record(call, **starter)]
    first, second = read_parquet("taco", records, tmp_path, TACO)
    assert checks(first) == {
        "tests": {
            "language": "python",
            "format": "stdin",
            "cases": [{"input": "3\n", "output": "6\n"}, {"input": "4", "output": "8"}],
            "seconds": 2.0,
            "megabytes": 256,
        },
        "reference": "print(2 * int(input()))",
    }
    assert (row(first).problem_source, row(first).problem) == ("made_up", "Double the number.")
    assert json.loads(row(first).extra)["difficulty"] == "EASY"
    assert cases_of(second)["cases"] == [{"args": [3], "out": 6}]
    assert row(second).problem.endswith("```python\ndef double(n):\n```")


def test_the_solution_is_the_first_in_python_3() -> None:
    solutions = ["n = input()\nprint 2 * n", "print(2 * int(input()))", "print('no')"]
    value = record({"inputs": ["3"], "outputs": ["6"]}, solutions=json.dumps(solutions))
    (found,) = read_jsonl("taco", [value])
    assert checks(found)["reference"] == "print(2 * int(input()))"
    (none,) = read_jsonl("taco", [{**value, "solutions": json.dumps(solutions[:1])}])
    assert "reference" not in checks(none)


def test_apps() -> None:
    """Lines of JSON; a problem may have no solution."""
    tests = '{"inputs": ["1"], "outputs": ["2"]}'
    value = {"id": 7, "question": "q", "solutions": "", "input_output": tests}
    (found,) = read_jsonl("taco", [value])
    assert checks(found) == {
        "tests": {
            "language": "python",
            "format": "stdin",
            "cases": [{"input": "1", "output": "2"}],
        }
    }
    assert row(found).extra == '{"id": 7}'


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("", "no_tests"),
        ("null", "no_tests"),
        ("{", "malformed_tests"),
        ({"inputs": [], "outputs": []}, "no_tests"),
        ({"inputs": ["1"], "outputs": ["1", "2"]}, "malformed_tests"),
        ({"inputs": [["1"]], "outputs": [["1"]], "fn_name": "a b"}, "malformed_tests"),
    ],
)
def test_refusals(tests: Any, reason: str) -> None:
    assert refused(read_jsonl("taco", [record(tests)])[0])[0] == reason


@pytest.mark.parametrize(
    ("seconds", "megabytes", "expected"),
    [
        ("1 second", "64 MB", (1.0, 64)),
        (None, None, (None, None)),
        ("500 ms", "262144 kilobytes", (None, None)),
        ("soon", "", (None, None)),
        ("0 seconds", "0.5 megabytes", (None, 1)),
    ],
)
def test_limits(seconds: Any, megabytes: Any, expected: tuple[Any, Any]) -> None:
    value = record({"inputs": ["1"], "outputs": ["1"]}, time_limit=seconds, memory_limit=megabytes)
    found = cases_of(read_jsonl("taco", [value])[0])
    assert (found.get("seconds"), found.get("megabytes")) == expected
