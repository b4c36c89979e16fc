"""DeepCoder's four parts: paired tests, typed tests, and those of LeetCode with starter code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import cases_of, checks, read_jsonl, read_parquet, refused, row

from pcl_reasoner.formats.records import ReadLimits

TEXT = pa.string()
PRIME = pa.schema([("problem", TEXT), ("solutions", pa.list_(TEXT)), ("tests", TEXT)])
LCB = pa.schema([("problem", TEXT), ("starter_code", TEXT), ("tests", TEXT), ("metadata", TEXT)])
STARTER = "class Solution:\n    def double(self, n: int) -> int:\n        "


def record(tests: Any, **others: Any) -> dict[str, Any]:
    solutions = [None, "```python\nprint(2 * int(input()))\n```", "print(0)"]
    return {
        "problem": "Double the number.",
        "solutions": solutions,
        "tests": json.dumps(tests),
        **others,
    }


def test_primeintellect_and_taco(tmp_path: Path) -> None:
    typed = [{"type": "stdin_stdout", "input": "3\n", "output": "6\n"}]
    taco = {"inputs": [[3], [4]], "outputs": [[6], [8]], "fn_name": "double"}
    first, second = read_parquet("deepcoder", [record(typed), record(taco)], tmp_path, PRIME)
    assert checks(first) == {
        "tests": {
            "language": "python",
            "format": "stdin",
            "cases": [{"input": "3\n", "output": "6\n"}],
        },
        "reference": "print(2 * int(input()))",
    }
    assert (row(first).kind, row(first).cot, row(first).extra) == ("code", "", "{}")
    assert cases_of(second)["entry"] == "double"
    assert cases_of(second)["cases"] == [{"args": [3], "out": 6}, {"args": [4], "out": 8}]


def test_lcbv5(tmp_path: Path) -> None:
    tests = [{"input": "[1, 2]\n3", "output": "[3]", "testtype": "functional"}]
    value = {
        "problem": "Double the number.",
        "starter_code": STARTER,
        "tests": json.dumps(tests),
        "metadata": '{"func_name": "double"}',
    }
    (found,) = read_parquet("deepcoder", [value], tmp_path, LCB)
    assert cases_of(found) == {
        "language": "python",
        "format": "functional",
        "entry": "double",
        "cases": [{"args": [[1, 2], 3], "out": [3]}],
    }
    assert row(found).problem == (
        "Double the number.\n\nStart from this code:\n\n```python\n"
        "class Solution:\n    def double(self, n: int) -> int:\n```"
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (record([]), "no_tests"),
        (record({"inputs": ["1"], "outputs": []}), "malformed_tests"),
        (record([{"input": "1", "output": "x", "testtype": "functional"}]), "malformed_tests"),
        ({"problem": "p"}, "no_tests"),
        (record([{"input": "1", "output": "1"}], problem=None), "malformed_problem"),
        (record([{"input": "\ud800", "output": "1"}]), "malformed_utf8"),
    ],
)
def test_refusals(value: dict[str, Any], reason: str) -> None:
    assert refused(read_jsonl("deepcoder", [value])[0])[0] == reason


def test_tests_that_are_too_large_are_not_parsed() -> None:
    value = {**record([]), "tests": "[" * 1000}
    found = read_jsonl("deepcoder", [value], ReadLimits(max_bytes=999))[0]
    assert refused(found) == ("tests_too_large", "more than 999 bytes of tests")
