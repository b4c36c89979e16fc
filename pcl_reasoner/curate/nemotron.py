"""Rows of the Nemotron post-training sets (V1.5's data).

A record, as a Parquet row:

    messages  [{"role": "user", "content": "What is 6·7?"},
               {"role": "assistant", "content": "<think>…</think>\\boxed{42}"}]
    metadata  '{"expected_answer": "42", "problem_source": "aops_c4"}'
    license   "cc-by-4.0"          and further columns, which become ``extra``

Source: nvidia/Nemotron-Post-Training-Dataset-v1, math split.
"""

import json
from typing import Any

import pyarrow as pa

from pcl_reasoner.curate.records import Malformed, Reason, Refused, Row, parse_json, row_of, to_json


def wrong_columns(schema: pa.Schema) -> str | None:
    """Return what is wrong with a file's columns, or None.

    Args:
        schema: The Parquet file's schema.
    """
    double = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if double:
        return f"column {', '.join(double)} occurs twice, expected each name once"
    wanted = {
        "messages": "list<struct<role, content>> or a JSON string",
        "metadata": "a JSON string or struct<expected_answer, …>",
    }
    missing = [f"{name} ({kind})" for name, kind in wanted.items() if name not in schema.names]
    if missing:
        return f"no column {' and no column '.join(missing)}; got {', '.join(schema.names)}"
    for name, fields in (("messages", {"role", "content"}), ("metadata", {"expected_answer"})):
        kind = schema.field(name).type
        if not _fits(kind, fields, is_list=name == "messages"):
            return f"column {name} is {kind}, expected {wanted[name]}"
    return None


def _fits(kind: pa.DataType, fields: set[str], is_list: bool) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    if is_list:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            return False
        kind = kind.value_type
    return pa.types.is_struct(kind) and fields <= {field.name for field in kind}


def read_batch(batch: pa.RecordBatch) -> list[Row | Refused]:
    """Read a batch of records.

    Args:
        batch: Some rows with all columns, which include ``messages`` and ``metadata``.

    Returns:
        One Row or Refused per record, in order.
    """
    try:
        return [_read(record) for record in batch.to_pylist()]
    except UnicodeDecodeError as error:
        if batch.num_rows == 1:
            return [Refused(Reason.MALFORMED_UTF8, error.object)]
        single_rows = (batch.slice(index, 1) for index in range(batch.num_rows))
        return [record for row in single_rows for record in read_batch(row)]


def _read(record: dict[str, Any]) -> Row | Refused:
    try:
        turns = _parsed(record["messages"], Reason.MALFORMED_MESSAGES)
        problem, cot = _question_and_response(turns)
        metadata = _parsed(record["metadata"], Reason.MALFORMED_METADATA)
        if not isinstance(metadata, dict) or "expected_answer" not in metadata:
            raise Malformed(Reason.MALFORMED_METADATA)
        others = {name: record[name] for name in record if name not in ("messages", "metadata")}
        answer, source = _text(metadata["expected_answer"]), _text(metadata.get("problem_source"))
        return row_of(problem, cot, answer, source, to_json(others))
    except Malformed as error:
        # Not to_json, which does not escape the lone surrogates that the record may have.
        return Refused(str(error), json.dumps(record, default=str))


def _parsed(value: Any, reason: str) -> Any:
    """Return a column's value, parsed from JSON if it is a string."""
    if not isinstance(value, str):
        return value
    # Numbers stay text, so that the answer 1.50 does not become 1.5, and any length is accepted.
    return parse_json(value, reason, numbers_as_text=True)


def _question_and_response(messages: Any) -> tuple[Any, Any]:
    """Return the contents of the first user turn and of the first assistant turn after it."""
    if not isinstance(messages, list) or not all(isinstance(turn, dict) for turn in messages):
        raise Malformed(Reason.MALFORMED_MESSAGES)
    roles = [turn.get("role") for turn in messages]
    try:
        user = roles.index("user")
        assistant = roles.index("assistant", user + 1)
    except ValueError as error:
        raise Malformed(Reason.MALFORMED_MESSAGES) from error
    return messages[user].get("content"), messages[assistant].get("content")


def _text(value: Any) -> str:
    """Return a value as text: "" for null, a string as it is, JSON for anything else."""
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value)
