"""Rows of AceCode-87K.

A record, as a Parquet row:

    id          "evol_7"
    source      "evol"
    question    "Write a function add(a, b) …"
    test_cases  ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]
    inferences  [{"completion": …, "pass_rate": …}]            left out, being large

Source: TIGER-Lab/AceCode-87K (arXiv 2502.01718).
"""

from __future__ import annotations

from typing import Any

from pcl_reasoner.formats.checks import Tests, assert_cases, code_checks
from pcl_reasoner.formats.records import ReadLimits, Row, others_of, row_of, text_of

COLUMNS = {"question": "string", "test_cases": "list<string>"}
"""Column that every file has -> its type."""

_USED = frozenset({"question", "test_cases", "source", "inferences", "context_messages"})


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns.
        limits: How many tests are kept.

    Raises:
        Malformed: The record is malformed.
    """
    checks = code_checks(Tests("assert", assert_cases(record.get("test_cases"))), limits)
    source = text_of(record.get("source"))
    return row_of(
        record.get("question"), None, "", source, others_of(record, _USED), "code", checks
    )
