"""KodCode: modules of pytest, and the online judge's inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import cases_of, checks, read_jsonl, read_parquet, refused, row

TEXT = pa.string()
INFOS = ("docstring", "function_declaration", "function_name", "parameter_list")
INFO = pa.struct([(name, TEXT) for name in INFOS])
SCHEMA = pa.schema(
    [
        *((name, TEXT) for name in ("version", "style", "subset", "question_id", "question")),
        *((name, TEXT) for name in ("solution", "test")),
        ("test_info", pa.list_(INFO)),
        ("gpt_pass_sequence", pa.list_(pa.int64())),
        ("gpt_pass_percentage", pa.float64()),
    ]
)
TEST = "from solution import double\n\ndef test_double():\n    assert double(3) == 6\n"
STDIO = "{'stdin': ['3\\n', '4\\n'], 'stdout': ['6\\n', '8\\n']}"


def record(style: str, test: str | None = TEST, **others: Any) -> dict[str, Any]:
    return {
        "version": "KodCode-V1",
        "style": style,
        "subset": "Prefill",
        "question_id": "Prefill_7_I",
        "question": "Write a function that doubles a number.",
        "solution": "def double(n):\n    return 2 * n",
        "test": test,
        "test_info": [
            {
                "docstring": "",
                "function_declaration": "def double(n):",
                "function_name": "double",
                "parameter_list": "(n)",
            }
        ],
        "gpt_pass_sequence": [1, 0],
        "gpt_pass_percentage": 0.5,
        **others,
    }


def test_the_published_file(tmp_path: Path) -> None:
    named = "Complete:\ndef double(n):\n    pass"
    judge = record("online_judge", STDIO, test_info=None, solution="print(2 * int(input()))")
    records = [record("instruct"), record("complete", question=named), judge]
    first, second, third = read_parquet("kodcode", records, tmp_path, SCHEMA)
    assert checks(first) == {
        "tests": {"language": "python", "format": "pytest", "cases": [TEST]},
        "reference": "def double(n):\n    return 2 * n",
    }
    assert row(first).problem == (
        "Write a function that doubles a number.\n\nStart from this code:\n\n"
        "```python\ndef double(n):\n```"
    )
    assert row(second).problem == named  # it has the declaration
    assert cases_of(third) == {
        "language": "python",
        "format": "stdin",
        "cases": [{"input": "3\n", "output": "6\n"}, {"input": "4\n", "output": "8\n"}],
    }
    assert (row(first).problem_source, row(first).kind) == ("Prefill", "code")


def test_the_older_column_and_a_text_of_infos() -> None:
    value = record("Instruct", None, test_code=TEST)
    infos = [{"function_declaration": "def double(n):"}, {"function_declaration": "def f():"}]
    value["test_info"] = repr(infos)
    (found,) = read_jsonl("kodcode", [value])
    assert cases_of(found)["cases"] == [TEST]
    assert row(found).problem.endswith("```python\ndef double(n):\ndef f():\n```")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (record("instruct", None), "no_tests"),
        (record("instruct", "x = 1"), "malformed_tests"),
        (record("instruct", "def test_f(:"), "malformed_tests"),
        (record("Online Judge", "{'stdin': ['1'], 'stdout': []}"), "malformed_tests"),
        (record("online_judge", "[1]"), "malformed_tests"),
        (record("online_judge", None), "no_tests"),
        (record("instruct", question=""), "malformed_problem"),
        ({}, "no_tests"),
    ],
)
def test_refusals(value: dict[str, Any], reason: str) -> None:
    assert refused(read_jsonl("kodcode", [value])[0])[0] == reason
