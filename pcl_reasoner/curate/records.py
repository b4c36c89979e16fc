"""Rows of convert's output, and the reasons for which a source record is malformed.

A row of rows/part-00000.parquet:

    row_id          "data/train-00000.parquet:17"      source file and 0-based row in it
    problem_id      "4cf2e0cd1c9b2b5f"                 equal for equal problems
    problem         "What is 6·7?"
    cot             "<think>6·7 = 42</think>The answer is \\boxed{42}."
    ground_truth    "42"                               "" where the source gives none
    problem_source  "aops_c4_high_school_olympiads"    "" where the source gives none
    extra           '{"license": "cc-by-4.0"}'         the source's other columns, JSON
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum, auto
from typing import Any

import pyarrow as pa

from pcl_reasoner.core.schemas import ROWS
from pcl_reasoner.curate import normalise_problem, problem_id


class Reason(StrEnum):
    """Why a source record is malformed."""

    MALFORMED_JSON = auto()
    """A JSONL line that is not exactly one JSON object, e.g. an empty line."""
    MALFORMED_TOO_LONG = auto()
    """A JSONL line of more than 64 MiB, not parsed; its quarantine record has its first 4 KiB."""
    MALFORMED_DUPLICATE_KEY = auto()
    """A key occurs twice in one JSON object, so the intended value is unknown."""
    MALFORMED_UTF8 = auto()
    """Bytes that are not UTF-8, or text with a lone surrogate, which UTF-8 cannot encode."""
    MALFORMED_MESSAGES = auto()
    """The turns are not a list, or have no question, or no response after the question."""
    MALFORMED_PROBLEM = auto()
    """The problem is null, not a string, or blank."""
    MALFORMED_RESPONSE = auto()
    """The response is null, not a string, or blank."""
    MALFORMED_METADATA = auto()
    """The metadata are null, not a JSON object, or have no expected_answer."""


@dataclass(frozen=True)
class Row:
    """The content of a source record, before ids are assigned."""

    problem: str
    cot: str
    ground_truth: str
    problem_source: str
    extra: str


@dataclass(frozen=True)
class Refused:
    """A source record that does not become a row.

    Args:
        reason: One of Reason, or the name of the filter that drops the record.
        raw: The text for quarantined.jsonl: the record as read or, for a filter, its problem.
    """

    reason: str
    raw: str | bytes


class Malformed(Exception):
    """Raised by functions that parse one record; its message is a value of Reason."""


def row_of(problem: Any, cot: Any, ground_truth: str, problem_source: str, extra: str) -> Row:
    """Check the fields that every format has, and make a row of them.

    Raises:
        Malformed: The problem or response is not a string or is blank, or a text cannot be encoded
            as UTF-8.
    """
    if not isinstance(problem, str) or not problem.strip() or not normalise_problem(problem):
        raise Malformed(Reason.MALFORMED_PROBLEM)
    # strip() would copy, and a response may have 64 MiB.
    if not isinstance(cot, str) or not cot or cot.isspace():
        raise Malformed(Reason.MALFORMED_RESPONSE)
    truth = ground_truth if ground_truth.strip() else ""
    row = Row(problem, cot, truth, problem_source, extra)
    if any(map(has_lone_surrogate, vars(row).values())):
        raise Malformed(Reason.MALFORMED_UTF8)
    return row


def has_lone_surrogate(text: str) -> bool:
    """True if a text has half of a surrogate pair: JSON can contain it, UTF-8 cannot encode it."""
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
    """Parse JSON strictly: repeated keys, NaN and infinity are errors.

    Args:
        text: The JSON.
        reason: The Reason for text that is not JSON.
        numbers_as_text: Keep a number's digits as text: 1.50 becomes "1.50", at any length.

    Raises:
        Malformed: The text is not JSON, or a key occurs twice.
    """
    kinds: dict[str, Any] = {"parse_float": _finite}
    if numbers_as_text:
        kinds = {"parse_float": str, "parse_int": str}
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_finite, **kinds)
    except (ValueError, RecursionError) as error:
        raise Malformed(reason) from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise Malformed(Reason.MALFORMED_DUPLICATE_KEY)
    return record


def _finite(text: str) -> float:
    """Parse a number. NaN, Infinity and 1e999 are errors.

    Raises:
        ValueError: The number is not finite.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def to_json(value: Any) -> str:
    """Return any column's value as JSON with sorted keys; NaN and infinity become null."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
        return to_json(json.loads(text, parse_constant=lambda _: None))


def to_batch(file: str, rows: Sequence[tuple[int, Row]]) -> pa.RecordBatch:
    """Assign ids to rows, and return them as a batch.

    Args:
        file: Path of the source file, relative to the source.
        rows: Pairs (0-based row or line in that file, row).
    """
    ids = {
        "row_id": [f"{file}:{number}" for number, _ in rows],
        "problem_id": [problem_id(row.problem) for _, row in rows],
    }
    texts = {field.name: [getattr(row, field.name) for _, row in rows] for field in fields(Row)}
    return pa.RecordBatch.from_pydict({**ids, **texts}, schema=ROWS)
