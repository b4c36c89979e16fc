"""Rows of PrimeIntellect's verifiable-coding-problems, and of open-r1's copy of its Python part.

A record, as a Parquet row:

    problem_id              "vcp_7"
    source                  "codeforces"
    task_type               "verifiable_code"
    prompt                  "Solve the following …"        open-r1's copy: problem_statement
    gold_standard_solution  "```python\\nprint(…)\\n```"
    verification_info       "{'language': 'python', 'test_cases': [{'input': '3\\n',
                             'output': '6\\n', 'type': 'stdin_stdout', 'fn_name': None}]}"
    metadata                "{'difficulty': …, 'time_limit': '2 seconds', 'memory_limit': …}"

``verification_info`` and ``metadata`` are literals of Python; in open-r1's copy they are structs.

Sources: PrimeIntellect/verifiable-coding-problems, open-r1/verifiable-coding-problems-python.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pcl_reasoner.formats.checks import code_checks, language_of
from pcl_reasoner.formats.given_tests import parsed, problem_tests
from pcl_reasoner.formats.records import (
    Malformed,
    ReadLimits,
    Reason,
    Row,
    others_of,
    row_of,
    text_of,
)
from pcl_reasoner.formats.texts import code_in, first_code, megabytes_of, seconds_of

COLUMNS = {
    "prompt or problem_statement": "string",
    "verification_info": "string, or struct<language, test_cases>",
}
"""Column that every file has -> its type."""

_USED = frozenset(
    {"prompt", "problem_statement", "gold_standard_solution", "verification_info", "source"}
)


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns.
        limits: The number of tests that are kept, and their largest size.

    Raises:
        Malformed: The record is malformed, or its language is neither Python nor C++.
    """
    info = parsed(record.get("verification_info"), limits, literal=True)
    if info is None:
        raise Malformed(Reason.NO_TESTS)
    if not isinstance(info, dict):
        raise Malformed(Reason.MALFORMED_TESTS, "verification_info must be an object")
    language = language_of(info.get("language"))
    seconds, megabytes = _limits(record.get("metadata"), limits)
    tests = replace(
        problem_tests(info.get("test_cases")),
        language=language,
        seconds=seconds,
        megabytes=megabytes,
    )
    solution = record.get("gold_standard_solution")
    reference = first_code(solution) if language == "python" else code_in(solution)
    checks = code_checks(tests, limits, reference)
    problem = record.get("prompt") or record.get("problem_statement")
    source = text_of(record.get("source"))
    return row_of(problem, None, "", source, others_of(record, _USED), "code", checks)


def _limits(metadata: Any, limits: ReadLimits) -> tuple[float | None, int | None]:
    """Return the source's limits in seconds and megabytes; unreadable metadata have none."""
    try:
        found = parsed(metadata, limits, literal=True)
    except Malformed:
        return None, None
    if not isinstance(found, dict):
        return None, None
    return seconds_of(found.get("time_limit")), megabytes_of(found.get("memory_limit"))
