"""LiveCodeBench: public tests first, private tests as JSON or as a pickle that is not unpickled."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import cases_of, read_jsonl, read_parquet, refused, row

from pcl_reasoner.formats.records import Dates, ReadLimits, Row

NAMES = (
    *("question_title", "question_content", "platform", "question_id", "contest_id"),
    *("contest_date", "starter_code", "difficulty", "public_test_cases", "private_test_cases"),
    "metadata",
)
SCHEMA = pa.schema([(name, pa.string()) for name in NAMES])
PUBLIC = [{"input": "3\n", "output": "6\n", "testtype": "stdin"}]
PRIVATE = [{"input": f"{n}\n", "output": f"{2 * n}\n", "testtype": "stdin"} for n in range(40)]


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def record(private: str, **others: Any) -> dict[str, Any]:
    return {
        "question_title": "Double",
        "question_content": "Double the number.",
        "platform": "atcoder",
        "question_id": "made_up_a",
        "contest_id": "made_up",
        "contest_date": "2024-01-01T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(PUBLIC),
        "private_test_cases": private,
        "metadata": "{}",
        **others,
    }


@pytest.mark.parametrize(
    ("dates", "kept"),
    [
        (Dates(), [True, True, True, True]),
        (Dates(since=date(2024, 10, 1)), [False, True, True, True]),
        (Dates(before=date(2024, 10, 1)), [True, False, False, False]),
        (Dates(date(2024, 10, 1), date(2025, 2, 1)), [False, True, True, False]),
    ],
)
def test_problems_of_some_dates(dates: Dates, kept: list[bool]) -> None:
    days = ["2024-09-30T23:59:00", "2024-10-01T00:00:00", "2025-01-31", "2025-02-01T00:00:00"]
    tests = json.dumps(PRIVATE)
    records = [record(tests, contest_date=day) for day in days]
    found = read_jsonl("livecodebench", records, ReadLimits(contests=dates))
    assert [isinstance(one, Row) for one in found] == kept
    others = [refused(one) for one in found if not isinstance(one, Row)]
    outside = [day[:10] for day, is_kept in zip(days, kept, strict=True) if not is_kept]
    assert others == [("outside_dates", f"contest_date {day}") for day in outside]


@pytest.mark.parametrize("day", [None, "", "yesterday", "2024-13-01", 17])
def test_a_problem_without_a_date_is_malformed_if_dates_are_given(day: Any) -> None:
    value = record(json.dumps(PRIVATE), contest_date=day)
    assert isinstance(read_jsonl("livecodebench", [value])[0], Row)
    limits = ReadLimits(contests=Dates(since=date(2024, 10, 1)))
    reason, detail = refused(read_jsonl("livecodebench", [value], limits)[0])
    assert (reason, "expected e.g. 2024-10-01" in detail) == ("malformed_metadata", True)


def test_dates_have_a_day() -> None:
    with pytest.raises(ValueError, match="no day is since 2024-10-01 and before 2024-10-01"):
        Dates(date(2024, 10, 1), date(2024, 10, 1))


CALLS = [{"input": "3", "output": "6", "testtype": "functional"}]
LEETCODE = record(
    packed(json.dumps([{"input": "4", "output": "8", "testtype": "functional"}])),
    platform="leetcode",
    starter_code="class Solution:\n    def double(self, n: int) -> int:\n        ",
    public_test_cases=json.dumps(CALLS),
    metadata='{"func_name": "double"}',
)


def test_the_published_lines() -> None:
    records = [record(packed(json.dumps(PRIVATE))), record(json.dumps(PRIVATE)), LEETCODE]
    lite, full, leetcode = read_jsonl("livecodebench", records)
    assert cases_of(lite) == cases_of(full)
    inputs = [case["input"] for case in cases_of(lite)["cases"]]
    assert inputs == ["3\n", *(f"{n}\n" for n in range(9))]  # the public one, then nine of forty
    assert (row(lite).problem, row(lite).problem_source) == ("Double the number.", "atcoder")
    assert json.loads(row(lite).extra)["question_id"] == "made_up_a"
    assert cases_of(leetcode) == {
        "language": "python",
        "format": "functional",
        "entry": "double",
        "cases": [{"args": [3], "out": 6}, {"args": [4], "out": 8}],
    }
    assert "    def double(self, n: int) -> int:\n```" in row(leetcode).problem


def test_all_tests_and_parquet(tmp_path: Path) -> None:
    (found,) = read_parquet(
        "livecodebench", [record(packed(json.dumps(PRIVATE)))], tmp_path, SCHEMA, ReadLimits(None)
    )
    assert len(cases_of(found)["cases"]) == 41


class Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("never_made",)


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (record(packed(Command())), "malformed_tests", "pickle with opcode"),
        (record(packed(PRIVATE)), "malformed_tests", "pickle with opcode EMPTY_LIST at byte"),
        (record(packed("not json")), "malformed_tests", ""),
        (record(packed('{"a": 1}')), "malformed_tests", "expected lists of public and private"),
        (record(packed("[]"), public_test_cases="[]"), "no_tests", ""),
        (record(packed(json.dumps(CALLS))), "mixed_tests", "types functional, stdin"),
        (record("[", public_test_cases=""), "malformed_tests", ""),
        (record("eJx", public_test_cases=""), "malformed_tests", "not base64"),
        ({**LEETCODE, "metadata": "{}"}, "malformed_tests", "entry '', expected a function's name"),
        (record("", question_content=None), "malformed_problem", ""),
    ],
)
def test_refusals(
    value: dict[str, Any], reason: str, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = refused(read_jsonl("livecodebench", [value])[0])
    assert (found[0], found[1][: len(detail)]) == (reason, detail)
    assert list(tmp_path.iterdir()) == []


def test_a_bomb_in_a_line() -> None:
    value = record(packed("0" * (1 << 20)))
    found = refused(read_jsonl("livecodebench", [value], ReadLimits(max_bytes=1 << 20))[0])
    assert found == ("tests_too_large", "more than 1048576 bytes after decompression")
