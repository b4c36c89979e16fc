"""PrimeIntellect's set, whose tests are a literal of Python, and open-r1's copy with structs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import cases_of, checks, read_jsonl, read_parquet, refused, row

TEXT = pa.string()
PRIME = pa.schema(
    [
        (name, TEXT)
        for name in (
            *("source", "task_type", "in_source_id", "prompt", "gold_standard_solution"),
            *("verification_info", "metadata", "problem_id"),
        )
    ]
)
CASE = pa.struct([(name, TEXT) for name in ("fn_name", "input", "output", "type")])
OPEN_R1 = pa.schema(
    [
        *((name, TEXT) for name in ("source", "problem_statement", "gold_standard_solution")),
        ("metadata", pa.struct([("memory_limit", TEXT), ("time_limit", TEXT)])),
        ("verification_info", pa.struct([("language", TEXT), ("test_cases", pa.list_(CASE))])),
    ]
)
STDIN = {"input": "3\n", "output": "6\n", "type": "stdin_stdout", "fn_name": None}
CALL = {"input": "3", "output": "6", "type": "function_call", "fn_name": "double"}


def record(language: Any = "python", cases: Any = (STDIN,), **others: Any) -> dict[str, Any]:
    info = {"language": language, "test_cases": list(cases)}
    return {
        "source": "made_up",
        "task_type": "verifiable_code",
        "prompt": "Double the number.",
        "gold_standard_solution": "So:\n```python\nprint(2 * int(input()))\n```\n",
        "verification_info": repr(info),
        "metadata": repr({"time_limit": "2 seconds", "memory_limit": "256 megabytes"}),
        "problem_id": "vcp_7",
        **others,
    }


def test_the_published_file(tmp_path: Path) -> None:
    cpp = record("cpp", gold_standard_solution="```cpp\nint main() {}\n```")
    records = [record(), cpp, record(cases=[{**CALL, "input": [3], "output": [6]}])]
    first, second, call = read_parquet("verifiable", records, tmp_path, PRIME)
    assert checks(first) == {
        "tests": {
            "language": "python",
            "format": "stdin",
            "cases": [{"input": "3\n", "output": "6\n"}],
            "seconds": 2.0,
            "megabytes": 256,
        },
        "reference": "print(2 * int(input()))",
    }
    assert (row(first).problem, row(first).problem_source) == ("Double the number.", "made_up")
    assert json.loads(row(first).extra)["problem_id"] == "vcp_7"
    assert (cases_of(second)["language"], checks(second)["reference"]) == ("cpp", "int main() {}")
    assert (cases_of(call)["entry"], cases_of(call)["cases"]) == (
        "double",
        [{"args": [3], "out": 6}],
    )


def test_the_copy_with_structs(tmp_path: Path) -> None:
    records = [
        {
            "source": "made_up",
            "problem_statement": "Double the number.",
            "gold_standard_solution": None,
            "metadata": {"time_limit": None, "memory_limit": "?"},
            "verification_info": {"language": "python", "test_cases": [CALL]},
        }
    ]
    (found,) = read_parquet("verifiable", records, tmp_path, OPEN_R1)
    assert checks(found) == {
        "tests": {
            "language": "python",
            "format": "functional",
            "entry": "double",
            "cases": [{"args": [3], "out": 6}],
        }
    }


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (record("rust"), "unsupported_tests", "language 'rust', expected Python or C++"),
        (record(cases=[]), "no_tests", ""),
        (record(verification_info=None), "no_tests", ""),
        (record(verification_info="[1]"), "malformed_tests", "verification_info must be"),
        (record(verification_info="{'a'"), "malformed_tests", "neither JSON nor"),
        (record(cases=[STDIN, CALL]), "mixed_tests", "types functional, stdin in one problem"),
        (record(prompt=None), "malformed_problem", ""),
        (record(gold_standard_solution="x\0"), "nul", ""),
    ],
)
def test_refusals(value: dict[str, Any], reason: str, detail: str) -> None:
    found = refused(read_jsonl("verifiable", [value])[0])
    assert (found[0], found[1][: len(detail)]) == (reason, detail)


def test_a_solution_in_python_2_is_no_solution() -> None:
    old = "```python\nprint 2 * input()\n```"
    (found,) = read_jsonl("verifiable", [record(gold_standard_solution=old)])
    assert "reference" not in checks(found)


def test_unreadable_metadata_cost_only_the_limits() -> None:
    (found,) = read_jsonl("verifiable", [record(metadata="{'time_limit'")])
    assert "seconds" not in cases_of(found)
