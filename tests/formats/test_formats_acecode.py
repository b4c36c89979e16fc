"""AceCode-87K: a list of assert statements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import MESSAGES, cases_of, read_jsonl, read_parquet, refused, row

TEXT = pa.string()
INFERENCE = pa.struct([("completion", TEXT), ("model_name", TEXT), ("pass_rate", pa.float64())])
SCHEMA = pa.schema(
    [
        *((name, TEXT) for name in ("id", "source", "question")),
        ("test_cases", pa.list_(TEXT)),
        ("inferences", pa.list_(INFERENCE)),
        ("context_messages", pa.list_(MESSAGES)),
    ]
)


def record(test_cases: Any) -> dict[str, Any]:
    return {
        "id": "evol_7",
        "source": "evol",
        "question": "Write a function double(n).",
        "test_cases": test_cases,
        "inferences": [{"completion": "x" * 99, "model_name": "m", "pass_rate": 0.5}],
        "context_messages": [[{"role": "user", "content": "Write …"}]],
    }


def test_the_published_file(tmp_path: Path) -> None:
    asserts = [f"assert double({n}) == {2 * n}" for n in range(16)]
    (found,) = read_parquet("acecode", [record(asserts)], tmp_path, SCHEMA)
    assert cases_of(found) == {
        "language": "python",
        "format": "assert",
        "cases": asserts[:10],
    }
    assert (row(found).problem_source, row(found).kind) == ("evol", "code")
    assert json.loads(row(found).extra) == {"id": "evol_7"}


@pytest.mark.parametrize(
    ("test_cases", "reason"),
    [
        ([], "no_tests"),
        (None, "no_tests"),
        (["assert double(3) =="], "malformed_tests"),
        (["assert double(3) == 6", None], "malformed_tests"),
        (["print(1)"], "malformed_tests"),
        (["assert '\0'"], "nul"),
    ],
)
def test_refusals(test_cases: Any, reason: str) -> None:
    assert refused(read_jsonl("acecode", [record(test_cases)])[0])[0] == reason
