"""IFEval as lines of JSON and as Parquet, and Tülu's RLVR-IFeval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import MESSAGES, checks, read_jsonl, read_parquet, refused, row

TEXT, WHOLE = pa.string(), pa.int64()
KWARGS = pa.struct(
    [("num_words", WHOLE), ("relation", TEXT), ("keywords", pa.list_(TEXT)), ("end_phrase", TEXT)]
)
IFEVAL = pa.schema(
    [
        ("key", WHOLE),
        ("prompt", TEXT),
        ("instruction_id_list", pa.list_(TEXT)),
        ("kwargs", pa.list_(KWARGS)),
    ]
)
RLVR = pa.schema(
    [
        ("messages", MESSAGES),
        *((name, TEXT) for name in ("ground_truth", "dataset", "constraint_type", "constraint")),
    ]
)
NAMES = ["length_constraints:number_words", "punctuation:no_comma"]
EXPECTED = [
    {"id": NAMES[0], "kwargs": {"num_words": 40, "relation": "at least"}},
    {"id": NAMES[1], "kwargs": {}},
]


def record(names: Any = NAMES, kwargs: Any = None, **others: Any) -> dict[str, Any]:
    given = [{"num_words": 40, "relation": "at least"}, {}] if kwargs is None else kwargs
    return {
        "key": 7,
        "prompt": "Name animals.",
        "instruction_id_list": names,
        "kwargs": given,
        **others,
    }


def test_ifeval(tmp_path: Path) -> None:
    """In Parquet the kwargs have every key, most of them null."""
    (line,) = read_jsonl("ifeval", [record()])
    (table,) = read_parquet("ifeval", [record()], tmp_path, IFEVAL)
    for found in (line, table):
        assert checks(found) == {"instructions": EXPECTED}
        assert (row(found).problem, row(found).kind) == ("Name animals.", "instruction")
        assert (row(found).ground_truth, row(found).cot) == ("", "")
        assert json.loads(row(found).extra) == {"key": 7}


def test_kwargs_as_json_and_null() -> None:
    kwargs = ['{"num_words": 40.0, "relation": "at least"}', None]
    (found,) = read_jsonl("ifeval", [record(kwargs=kwargs)])
    assert checks(found)["instructions"] == EXPECTED


def rlvr(call: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": "Name animals."}],
        "ground_truth": call if isinstance(call, str) else json.dumps(call),
        "dataset": "ifeval",
        "constraint_type": "made up",
        "constraint": "made up",
    }


def test_rlvr_ifeval(tmp_path: Path) -> None:
    """The unused arguments of Tülu's functions are null."""
    nulls = dict.fromkeys(("keyword_list", "letter", "end_phrase", "options", "i"))
    call = {"func_name": "validate_word_constraint", "N": 40, "quantifier": "at least", **nulls}
    comma = {"func_name": "validate_no_commas", "N": None, "quantifier": None, **nulls}
    first, second = read_parquet("ifeval", [rlvr(call), rlvr(comma)], tmp_path, RLVR)
    assert checks(first)["instructions"] == EXPECTED[:1]
    assert checks(second)["instructions"] == EXPECTED[1:]
    assert (row(first).problem, row(first).problem_source) == ("Name animals.", "ifeval")


def test_a_list_of_calls() -> None:
    calls = ['{"func_name": "validate_title"}', '{"func_name": "validate_no_commas"}']
    value = {**rlvr(""), "ground_truth": calls}
    found = checks(read_jsonl("ifeval", [value])[0])["instructions"]
    assert [one["id"] for one in found] == ["detectable_format:title", "punctuation:no_comma"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (record([], []), "malformed_instructions"),
        (record(NAMES, [{}]), "malformed_instructions"),
        (record("punctuation:no_comma"), "malformed_instructions"),
        (record([7, 8]), "malformed_instructions"),
        (record([" ", "a"]), "unsupported_instructions"),
        (record(kwargs=[[], {}]), "malformed_instructions"),
        (record(kwargs=["{", {}]), "malformed_instructions"),
        (record(prompt=None), "malformed_problem"),
        (rlvr("not json"), "malformed_instructions"),
        (rlvr([1]), "malformed_instructions"),
        ({**rlvr({}), "ground_truth": None}, "malformed_instructions"),
        (
            rlvr({"func_name": "validate_response_language", "language": "nl"}),
            "unsupported_instructions",
        ),
        ({**rlvr({"func_name": "validate_title"}), "messages": []}, "malformed_messages"),
        ({}, "malformed_messages"),
    ],
)
def test_refusals(value: dict[str, Any], reason: str) -> None:
    assert refused(read_jsonl("ifeval", [value])[0])[0] == reason
