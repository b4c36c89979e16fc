"""Rows of the Nemotron post-training sets (V1.5's data).

A record, as a Parquet row:

    messages  [{"role": "user", "content": "What is 6·7?"},
               {"role": "assistant", "content": "<think>…</think>\\boxed{42}"}]
    metadata  '{"expected_answer": "42", "problem_source": "aops_c4"}'
    license   "cc-by-4.0"          and further columns, which become ``extra``

Source: nvidia/Nemotron-Post-Training-Dataset-v1, math split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pcl_reasoner.formats.records import (
    Malformed,
    ReadLimits,
    Reason,
    Row,
    others_of,
    parse_json,
    row_of,
    text_of,
    user_and_assistant_turns,
)

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {
    "messages": "list<struct<role, content>> or a JSON string",
    "metadata": "a JSON string or struct<expected_answer, …>",
}
"""Column that every file has -> its type."""


def wrong_types(schema: pa.Schema) -> str | None:
    """Return what is wrong with the types of a file's columns, or None.

    Args:
        schema: The Parquet file's schema; has all of COLUMNS.
    """
    for name, fields in (("messages", {"role", "content"}), ("metadata", {"expected_answer"})):
        kind = schema.field(name).type
        if not _fits(kind, fields, is_list=name == "messages"):
            return f"column {name} is {kind}, expected {COLUMNS[name]}"
    return None


def _fits(kind: pa.DataType, fields: set[str], is_list: bool) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    if is_list:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            return False
        kind = kind.value_type
    return pa.types.is_struct(kind) and fields <= {field.name for field in kind}


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns, which include ``messages`` and ``metadata``.
        limits: Not used: these records have no tests.

    Raises:
        Malformed: The record is malformed.
    """
    turns = _parsed(record["messages"], Reason.MALFORMED_MESSAGES)
    problem, cot = user_and_assistant_turns(turns, answered=True)
    metadata = _parsed(record["metadata"], Reason.MALFORMED_METADATA)
    if not isinstance(metadata, dict) or "expected_answer" not in metadata:
        raise Malformed(Reason.MALFORMED_METADATA)
    answer = text_of(metadata["expected_answer"])
    source = text_of(metadata.get("problem_source"))
    return row_of(problem, cot, answer, source, others_of(record, frozenset(COLUMNS)))


def _parsed(value: Any, reason: str) -> Any:
    """Return a column's value, parsed from JSON if it is a string."""
    if not isinstance(value, str):
        return value
    # Numbers stay text, so that the answer 1.50 does not become 1.5, and any length is accepted.
    return parse_json(value, reason, numbers_as_text=True)
