r"""Lines of LiveCodeBench, code_generation and code_generation_lite.

A record, as a line of test.jsonl, test2.jsonl …:

    question_id         "abc301_a"
    question_content    "You are given …"
    platform            "atcoder"
    contest_date        "2023-05-13T00:00:00"
    starter_code        ""                                   LeetCode: "class Solution:\n    def …"
    difficulty          "easy"
    public_test_cases   '[{"input": "3\n", "output": "6\n", "testtype": "stdin"}]'
    private_test_cases  the same JSON, or base64 of zlib of a pickle of its text
    metadata            '{}'                                 LeetCode: '{"func_name": "double"}'

The public tests come first. The pickle is never unpickled: see pickled_text.py.

Source: livecodebench/code_generation_lite; LiveCodeBench's lcb_runner/benchmarks.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from pcl_reasoner.formats.checks import check_size, code_checks
from pcl_reasoner.formats.deepcoder import function_name
from pcl_reasoner.formats.given_tests import parsed, problem_tests
from pcl_reasoner.formats.pickled_text import unpack
from pcl_reasoner.formats.records import (
    Dates,
    Malformed,
    ReadLimits,
    Reason,
    Row,
    others_of,
    row_of,
    text_of,
)
from pcl_reasoner.formats.texts import with_starter

COLUMNS = {
    "question_content": "string",
    "public_test_cases": "string, JSON",
    "private_test_cases": "string, JSON or base64",
    "metadata": "string, JSON",
}
"""Column that every file has -> its type."""

_USED = frozenset(
    {"question_content", "public_test_cases", "private_test_cases", "starter_code", "platform"}
)


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns.
        limits: The number of tests that are kept, their largest size, and the contests' dates.

    Raises:
        Malformed: The record is malformed, its pickle holds anything but one text, or its contest
            was on another day than those that are read.
    """
    _check_date(record.get("contest_date"), limits.contests)
    public = parsed(record.get("public_test_cases"), limits) or []
    private = _private(record.get("private_test_cases"), limits) or []
    if not isinstance(public, list) or not isinstance(private, list):
        raise Malformed(Reason.MALFORMED_TESTS, "expected lists of public and private tests")
    tests = problem_tests([*public, *private], function_name(record.get("metadata"), limits))
    problem = with_starter(record.get("question_content"), record.get("starter_code"))
    source, extra = text_of(record.get("platform")), others_of(record, _USED)
    return row_of(problem, None, "", source, extra, "code", code_checks(tests, limits))


def _check_date(given: Any, wanted: Dates) -> None:
    if not wanted.are_limited:
        return
    try:
        day = date.fromisoformat(str(given)[:10])
    except ValueError as error:
        detail = f"contest_date {str(given)[:30]!r}, expected e.g. 2024-10-01T00:00:00"
        raise Malformed(Reason.MALFORMED_METADATA, detail) from error
    if day not in wanted:
        raise Malformed(Reason.OUTSIDE_DATES, f"contest_date {day}")


def _private(given: Any, limits: ReadLimits) -> Any:
    if not isinstance(given, str) or given.lstrip()[:1] in ("", "[", "{"):
        return parsed(given, limits)
    check_size(given, limits)
    return parsed(unpack(given, limits.max_bytes), limits)
