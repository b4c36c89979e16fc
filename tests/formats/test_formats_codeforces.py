"""open-r1's codeforces and codeforces-cots: official tests with a checker, and responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import MESSAGES, cases_of, read_jsonl, read_parquet, refused, row

TEXT, NUMBER = pa.string(), pa.float64()
TEST = pa.struct([("input", TEXT), ("output", TEXT)])
PROBLEM = [
    *((name, TEXT) for name in ("id", "contest_id", "index", "title", "description")),
    *((name, TEXT) for name in ("input_format", "output_format", "interaction_format", "note")),
    *((name, NUMBER) for name in ("time_limit", "memory_limit")),
    ("examples", pa.list_(TEST)),
    ("tags", pa.list_(TEXT)),
]
CODEFORCES = pa.schema(
    [
        *PROBLEM,
        ("official_tests", pa.list_(TEST)),
        ("official_tests_complete", pa.bool_()),
        *((name, TEXT) for name in ("input_mode", "generated_checker")),
        ("executable", pa.bool_()),
    ]
)
LISTS = pa.struct([("input", pa.list_(TEXT)), ("output", pa.list_(TEXT))])
COTS = pa.schema(
    [
        *PROBLEM,
        *((name, TEXT) for name in ("editorial", "prompt", "generation", "finish_reason")),
        ("messages", MESSAGES),
        *((name, LISTS) for name in ("public_tests", "private_tests", "generated_tests")),
    ]
)
STATEMENT = {
    "id": "1/A",
    "contest_id": "1",
    "index": "A",
    "title": "Double",
    "description": "Double the number.",
    "input_format": "One integer.",
    "output_format": "One integer.",
    "interaction_format": None,
    "note": None,
    "time_limit": 2.0,
    "memory_limit": 256.0,
    "examples": [{"input": "3\n", "output": "6\n"}],
    "tags": ["math"],
}


def record(**others: Any) -> dict[str, Any]:
    return {
        **STATEMENT,
        "official_tests": [{"input": "3\n", "output": "6\n"}, {"input": "4\n", "output": "8\n"}],
        "official_tests_complete": True,
        "input_mode": "stdio",
        "generated_checker": None,
        "executable": True,
        **others,
    }


def test_problems_with_official_tests(tmp_path: Path) -> None:
    checker = "import sys\nprint(1)\n"
    records = [record(), record(generated_checker=checker, note="Twice.", examples=None)]
    first, second = read_parquet("codeforces", records, tmp_path, CODEFORCES)
    assert cases_of(first) == {
        "language": "python",
        "format": "stdin",
        "cases": [{"input": "3\n", "output": "6\n"}, {"input": "4\n", "output": "8\n"}],
        "seconds": 2.0,
        "megabytes": 256,
    }
    assert row(first).problem == (
        "Double the number.\n\n## Input\n\nOne integer.\n\n## Output\n\nOne integer.\n\n"
        "## Examples\n\nInput:\n3\n\nOutput:\n6"
    )
    assert (row(first).cot, row(first).problem_source) == ("", "codeforces")
    assert json.loads(row(first).extra)["tags"] == ["math"]
    assert cases_of(second)["checker"] == checker
    assert row(second).problem.endswith("## Output\n\nOne integer.\n\n## Note\n\nTwice.")


def lists(*inputs: str) -> dict[str, list[str]]:
    return {"input": list(inputs), "output": [f"{text}!" for text in inputs]}


def test_responses_with_tests(tmp_path: Path) -> None:
    """Public tests first, then private, then generated ones; the prompt names the language."""
    prompt = "Write C++17.\n\n```cpp\n<your code here>\n```"
    value = {
        **STATEMENT,
        "editorial": None,
        "prompt": prompt,
        "generation": "<think>Twice.</think>```cpp\nint main() {}\n```",
        "finish_reason": "stop",
        "messages": [{"role": "user", "content": prompt}],
        "public_tests": lists("a"),
        "private_tests": lists(),
        "generated_tests": lists("b", "c"),
    }
    python = {**value, "prompt": "Write Python.\n```python\n```", "private_tests": None}
    first, second = read_parquet("codeforces", [value, python], tmp_path, COTS)
    assert (row(first).problem, row(first).cot) == (prompt, value["generation"])
    assert cases_of(first)["language"] == "cpp"
    assert [case["input"] for case in cases_of(first)["cases"]] == ["a", "b", "c"]
    assert cases_of(second)["language"] == "python"
    assert "generation" not in row(first).extra


def test_the_language_of_the_prompts_parts() -> None:
    (found,) = read_jsonl("codeforces", [record(language="cpp", prompt="Write C++.")])
    assert (cases_of(found)["language"], row(found).problem) == ("cpp", "Write C++.")


@pytest.mark.parametrize(
    ("others", "reason", "detail"),
    [
        ({"interaction_format": "Ask."}, "unsupported_tests", "the problem is interactive"),
        ({"input_mode": "file"}, "unsupported_tests", "input_mode 'file', expected stdio"),
        ({"executable": False}, "unsupported_tests", "the source cannot run it"),
        ({"official_tests": []}, "no_tests", ""),
        ({"official_tests": None}, "no_tests", ""),
        ({"official_tests": [7]}, "malformed_tests", "official_tests must be a list of tests"),
        ({"official_tests": [{"input": "3"}]}, "malformed_tests", "input or output of type"),
        ({"public_tests": {"input": ["3"], "output": []}}, "malformed_tests", "1 inputs and 0"),
        ({"generated_checker": 7}, "malformed_tests", "generated_checker must be a text"),
        ({"generated_checker": "\0"}, "nul", ""),
        ({"language": "java"}, "unsupported_tests", "language 'java'"),
        ({"description": None}, "malformed_problem", ""),
        ({"generation": 7}, "malformed_response", ""),
    ],
)
def test_refusals(others: dict[str, Any], reason: str, detail: str) -> None:
    found = refused(read_jsonl("codeforces", [record(**others)])[0])
    assert (found[0], found[1][: len(detail)]) == (reason, detail)


def test_odd_parts_of_a_statement_are_left_out() -> None:
    (found,) = read_jsonl("codeforces", [record(examples=7, note=[1], input_format=" ")])
    assert row(found).problem == "Double the number.\n\n## Output\n\nOne integer."
