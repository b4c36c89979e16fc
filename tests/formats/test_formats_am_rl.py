"""AM-Thinking-v1's own queries: math.parquet and code.parquet, and PRIME's, which look alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import MESSAGES, cases_of, read_jsonl, read_parquet, refused, row

SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", MESSAGES),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("ground_truth", pa.string()), ("style", pa.string())])),
        ("extra_info", pa.struct([("index", pa.int64()), ("split", pa.string())])),
    ]
)


def record(ability: str | None, truth: Any, *, system: bool = False) -> dict[str, Any]:
    turns = [{"role": "system", "content": "Think first."}] if system else []
    return {
        "data_source": "made_up_contest",
        "prompt": [*turns, {"role": "user", "content": "Double the number."}],
        "ability": ability,
        "reward_model": {"ground_truth": truth, "style": "rule"},
        "extra_info": {"index": 0, "split": "train"},
    }


def std(**others: Any) -> str:
    return json.dumps({"call_type": "std", "inputs": ["3\n"], "outputs": ["6\n"], **others})


def test_the_published_files(tmp_path: Path) -> None:
    asserts = ["assert double(3) == 6", "assert double(0) == 0"]
    records = [
        record("math", "90\\%", system=True),
        record("code", std()),
        record("code", std(fn_name="double", inputs=["3"], outputs=["6"])),
        record("code", json.dumps({"call_type": "assert", "assert_case": asserts})),
        record("code", json.dumps({"call_type": "assert", "assert_case": "\n".join(asserts)})),
        record("CODE", json.dumps({"inputs": ["3\n"], "outputs": ["6\n"]})),  # PRIME
    ]
    math, stdin, call, listed, joined, prime = read_parquet("am_rl", records, tmp_path, SCHEMA)
    assert row(math).problem == "Double the number."
    assert (row(math).ground_truth, row(math).kind, row(math).checks) == ("90\\%", "math", "")
    assert (row(math).cot, row(math).problem_source) == ("", "made_up_contest")
    assert json.loads(row(math).extra) == {
        "ability": "math",
        "extra_info": {"index": 0, "split": "train"},
    }
    assert cases_of(stdin) == {
        "language": "python",
        "format": "stdin",
        "cases": [{"input": "3\n", "output": "6\n"}],
    }
    assert (row(stdin).kind, row(stdin).ground_truth) == ("code", "")
    assert cases_of(prime) == cases_of(stdin)
    assert cases_of(call)["entry"] == "double"
    assert cases_of(call)["cases"] == [{"args": [3], "out": 6}]
    assert cases_of(listed)["format"] == "assert"
    assert cases_of(listed)["cases"] == cases_of(joined)["cases"] == asserts


def test_without_a_call_type_inputs_count_before_asserts() -> None:
    """A column that a problem does not need may hold an empty text."""
    asserts = ["assert double(3) == 6"]
    stdin = {"inputs": ["3\n"], "outputs": ["6\n"], "assert_case": [""]}
    other = {"inputs": [], "outputs": [], "assert_case": asserts}
    both = {"inputs": ["3\n"], "outputs": ["6\n"], "assert_case": asserts}
    found = read_jsonl("am_rl", [record("code", one) for one in (stdin, other, both)])
    assert [cases_of(one)["format"] for one in found] == ["stdin", "assert", "stdin"]
    told = {**both, "call_type": "assert"}
    (assertion,) = read_jsonl("am_rl", [record("code", told)])
    assert cases_of(assertion)["cases"] == asserts


def test_a_struct_in_json_lines() -> None:
    truth = {"call_type": "std", "inputs": ["3"], "outputs": ["6"], "language": "c++"}
    (found,) = read_jsonl("am_rl", [record("code", truth)])
    assert cases_of(found)["language"] == "cpp"


MATH = record("math", "7")


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (record("UNKNOWN", "7"), "unknown_kind", "ability 'UNKNOWN', expected math or code"),
        (record(None, "7"), "unknown_kind", "ability None, expected math or code"),
        (record("code", None), "no_tests", ""),
        (record("code", ""), "no_tests", ""),
        (record("code", "[1]"), "malformed_tests", "ground_truth must be an object"),
        (record("code", "{"), "malformed_tests", ""),
        (record("code", std(outputs=[])), "malformed_tests", "1 inputs and 0 outputs"),
        (record("code", std(call_type="file")), "malformed_tests", "call_type 'file', expected"),
        (record("code", '{"call_type": "assert"}'), "no_tests", ""),
        ({**MATH, "reward_model": None}, "malformed_metadata", ""),
        ({**MATH, "reward_model": {"style": "rule"}}, "malformed_metadata", ""),
        ({**MATH, "reward_model": "{"}, "malformed_metadata", ""),
        ({**MATH, "prompt": None}, "malformed_messages", ""),
        ({**MATH, "prompt": [{"role": "system", "content": "x"}]}, "malformed_messages", ""),
        ({**MATH, "prompt": [{"role": "user", "content": " "}]}, "malformed_problem", ""),
        ({}, "unknown_kind", "ability None, expected math or code"),
    ],
)
def test_refusals(value: dict[str, Any], reason: str, detail: str) -> None:
    found = refused(read_jsonl("am_rl", [value])[0])
    assert (found[0], found[1][: len(detail)]) == (reason, detail)
