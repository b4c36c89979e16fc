"""One row of convert's output, and what makes a source record malformed.

A row, as it lies in rows/part-00000.parquet:

    row_id          "data/train-00000.parquet:17"      source file and 0-based row in it
    problem_id      "4cf2e0cd1c9b2b5f"                 equal for equal problems
    problem         "What is 6·7?"
    cot             "<think>6·7 = 42</think>The answer is \\boxed{42}."
    ground_truth    "42"                               "" where the source gives none
    problem_source  "aops_c4_high_school_olympiads"    "" where the source gives none
    extra           '{"license": "cc-by-4.0"}'         the source's other columns, JSON
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pcl_reasoner.core.schemas import ROWS
from pcl_reasoner.curate import normalise_problem, problem_id

MALFORMED_JSON = "malformed_json"
"""A JSONL line that is not one JSON object (an empty line is none either)."""
MALFORMED_TOO_LONG = "malformed_too_long"
"""A JSONL line of more than 64 MiB; nothing of it was read but what stands in its record."""
MALFORMED_DUPLICATE_KEY = "malformed_duplicate_key"
"""A key stands twice in one JSON object: which value is meant cannot be known."""
MALFORMED_UTF8 = "malformed_utf8"
"""Bytes that are not UTF-8, or text with a lone surrogate, which UTF-8 cannot say."""
MALFORMED_MESSAGES = "malformed_messages"
"""No list of turns, no user turn, or no assistant turn after it."""
MALFORMED_PROBLEM = "malformed_problem"
"""The problem is null, no string, or blank."""
MALFORMED_RESPONSE = "malformed_response"
"""The response is null, no string, or blank."""
MALFORMED_METADATA = "malformed_metadata"
"""The metadata are null, no JSON object, or have no expected_answer."""


@dataclass(frozen=True)
class Row:
    """What a source record says, before it is given its ids."""

    problem: str
    cot: str
    ground_truth: str
    problem_source: str
    extra: str


@dataclass(frozen=True)
class Refused:
    """A source record that is no row.

    Args:
        reason: One of the MALFORMED words.
        raw: The record as it came, for quarantined.jsonl.
    """

    reason: str
    raw: str | bytes


class Malformed(Exception):
    """Raised by the parsers of one record; its text is one of the MALFORMED words."""


def make_row(problem: Any, cot: Any, ground_truth: str, problem_source: str, extra: str) -> Row:
    """Check the fields that every format has.

    Raises:
        Malformed: The problem or response is missing, or a text cannot be written as UTF-8.
    """
    if not isinstance(problem, str) or not problem.strip() or not normalise_problem(problem):
        raise Malformed(MALFORMED_PROBLEM)
    # strip() would copy, and a response may have 64 MiB.
    if not isinstance(cot, str) or not cot or cot.isspace():
        raise Malformed(MALFORMED_RESPONSE)
    truth = ground_truth if ground_truth.strip() else ""
    row = Row(problem, cot, truth, problem_source, extra)
    if any(_has_lone_surrogate(text) for text in (problem, cot, truth, problem_source, extra)):
        raise Malformed(MALFORMED_UTF8)
    return row


def _has_lone_surrogate(text: str) -> bool:
    if text.isascii():
        return False
    pieces = (text[start : start + 65536] for start in range(0, len(text), 65536))
    try:
        for piece in pieces:
            piece.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def parse_json(text: str, reason: str, numbers_as_text: bool = False) -> Any:
    """Read JSON as its standard has it: each key once, no NaN, no infinity.

    Args:
        text: The JSON.
        reason: One of the MALFORMED words, for text that is no JSON.
        numbers_as_text: Leave a number's digits as they are: 1.50 is "1.50", of any length.

    Raises:
        Malformed: It is no JSON, or a key stands twice.
    """
    kinds: dict[str, Any] = {"parse_int": str, "parse_float": str} if numbers_as_text else {}
    kinds = {"parse_float": _finite, **kinds}
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_finite, **kinds)
    except (ValueError, RecursionError) as error:
        raise Malformed(reason) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Malformed(MALFORMED_DUPLICATE_KEY)
    return found


def _finite(text: str) -> float:
    """A number; NaN, Infinity and 1e999, of which JSON has none, are errors."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def to_json(value: Any) -> str:
    """JSON with sorted keys of whatever a column holds; NaN and infinity become null."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
        return to_json(json.loads(text, parse_constant=lambda _: None))


def to_batch(file: str, rows: Sequence[tuple[int, Row]]) -> pa.RecordBatch:
    """Give rows their ids.

    Args:
        file: The source file, relative to the source.
        rows: (0-based row or line in that file, row).
    """
    columns: dict[str, list[str]] = {
        "row_id": [f"{file}:{number}" for number, _ in rows],
        "problem_id": [problem_id(row.problem) for _, row in rows],
        "problem": [row.problem for _, row in rows],
        "cot": [row.cot for _, row in rows],
        "ground_truth": [row.ground_truth for _, row in rows],
        "problem_source": [row.problem_source for _, row in rows],
        "extra": [row.extra for _, row in rows],
    }
    return pa.RecordBatch.from_pydict(columns, schema=ROWS)
