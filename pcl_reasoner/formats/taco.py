"""Rows of TACO and of APPS.

A record, as a Parquet row or a line of JSONL:

    question      "Print twice the number …"
    input_output  '{"inputs": ["3\\n"], "outputs": ["6\\n"]}'        with "fn_name" for a function
    solutions     '["print(2 * int(input()))"]'
    starter_code  ""
    source        "codeforces"                                       TACO only
    time_limit    "2.0 seconds"                                      TACO only
    memory_limit  "256.0 megabytes"                                  TACO only

Sources: BAAI/TACO; codeparrot/apps (train.jsonl).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pcl_reasoner.formats.checks import code_checks
from pcl_reasoner.formats.given_tests import parsed, problem_tests
from pcl_reasoner.formats.records import Malformed, ReadLimits, Row, others_of, row_of, text_of
from pcl_reasoner.formats.texts import first_code, megabytes_of, seconds_of, with_starter

COLUMNS = {"question": "string", "input_output": "string, JSON"}
"""Column that every file has -> its type."""

_USED = frozenset({"question", "input_output", "solutions", "starter_code", "source"})


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns.
        limits: The number of tests that are kept, and their largest size.

    Raises:
        Malformed: The record is malformed.
    """
    tests = replace(
        problem_tests(parsed(record.get("input_output"), limits)),
        seconds=seconds_of(record.get("time_limit")),
        megabytes=megabytes_of(record.get("memory_limit")),
    )
    checks = code_checks(tests, limits, _solution(record.get("solutions"), limits))
    problem = with_starter(record.get("question"), record.get("starter_code"))
    source = text_of(record.get("source"))
    return row_of(problem, None, "", source, others_of(record, _USED), "code", checks)


def _solution(solutions: Any, limits: ReadLimits) -> str:
    """Return the first solution; "" if there is none or the list cannot be read."""
    try:
        return first_code(parsed(solutions, limits))
    except Malformed:
        return ""
