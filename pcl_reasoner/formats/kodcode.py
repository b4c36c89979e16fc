"""Rows of KodCode-V1 and its parts for SFT and RL.

A record, as a Parquet row:

    style      "instruct"                   or complete, online_judge
    subset     "Docs"
    question   "Write a function that adds …"
    solution   "def add(a, b): …"
    test       "from solution import add\\n\\ndef test_add(): …"         older parts: test_code
    test_info  [{"function_name": "add", "parameter_list": "(a, b)",
                 "function_declaration": "def add(a, b):", "docstring": "…"}]

An online_judge problem has the literal "{'stdin': ['3\\n'], 'stdout': ['6\\n']}" as its test. The
declaration of the function is added to the problem, because the tests import the function by name.

Source: KodCode/KodCode-V1 (arXiv 2503.02951).
"""

from __future__ import annotations

from typing import Any

from pcl_reasoner.formats.checks import Tests, code_checks, pytest_cases, stdin_cases
from pcl_reasoner.formats.given_tests import parsed
from pcl_reasoner.formats.records import (
    Malformed,
    ReadLimits,
    Reason,
    Row,
    others_of,
    row_of,
    text_of,
)
from pcl_reasoner.formats.texts import first_code, with_starter

COLUMNS = {"style": "string", "question": "string", "test or test_code": "string, Python"}
"""Column that every file has -> its type."""

_USED = frozenset({"question", "solution", "test", "test_code", "test_info", "subset"})


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns.
        limits: The number of tests that are kept, and their largest size.

    Raises:
        Malformed: The record is malformed.
    """
    given = record.get("test") or record.get("test_code")
    problem = record.get("question")
    if text_of(record.get("style")).strip().lower().replace(" ", "_") == "online_judge":
        tests = _online_judge(parsed(given, limits, literal=True))
    else:
        tests = Tests("pytest", pytest_cases(given))
        problem = with_starter(problem, _declarations(record.get("test_info"), limits))
    checks = code_checks(tests, limits, first_code(record.get("solution")))
    source = text_of(record.get("subset"))
    return row_of(problem, None, "", source, others_of(record, _USED), "code", checks)


def _online_judge(given: Any) -> Tests:
    if given is None:
        raise Malformed(Reason.NO_TESTS)
    if not isinstance(given, dict):
        raise Malformed(Reason.MALFORMED_TESTS, "test of online_judge must have stdin and stdout")
    inputs = given.get("stdin", given.get("input"))
    outputs = given.get("stdout", given.get("output"))
    return Tests("stdin", stdin_cases(inputs, outputs))


def _declarations(test_info: Any, limits: ReadLimits) -> str:
    """Return the functions' declarations, one per line; "" if the source gives none."""
    try:
        found = parsed(test_info, limits, literal=True)
    except Malformed:
        return ""
    infos = found if isinstance(found, list) else [found]
    given = [one.get("function_declaration") for one in infos if isinstance(one, dict)]
    return "\n".join(one.strip() for one in given if isinstance(one, str) and one.strip())
