"""Batches of Parquet rows and lines of JSONL -> rows and refusals, by the name of a format.

read_line("chat", b'{"messages": [{"role": "user", "content": "Greet Ben."}]}', ReadLimits())
-> Row(problem="Greet Ben.", cot="", …, kind="chat", checks="")
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from pcl_reasoner.formats import (
    acecode,
    am_rl,
    chat,
    codeforces,
    conversations,
    deepcoder,
    ifeval,
    kodcode,
    livecodebench,
    nemotron,
    taco,
    verifiable,
)
from pcl_reasoner.formats.records import Malformed, ReadLimits, Reason, Refused, Row, parse_json

if TYPE_CHECKING:
    import pyarrow as pa

FormatName = Literal[
    "nemotron",
    "conversations",
    "am_rl",
    "verifiable",
    "deepcoder",
    "taco",
    "kodcode",
    "livecodebench",
    "codeforces",
    "acecode",
    "ifeval",
    "chat",
]

PARQUET = ("*.parquet",)
LINES = ("*.jsonl", "*.jsonl.zst", "*.jsonl.gz")


@dataclass(frozen=True)
class Format:
    """How the records of a published data set are read.

    Args:
        read: Makes a row of a record, or raises Malformed.
        columns: Column that every Parquet file has -> its type; "a or b": one of two columns.
        patterns: Patterns of the names of its files.
        wrong_types: Says what is wrong with a file's types, or returns None.
    """

    read: Callable[[dict[str, Any], ReadLimits], Row]
    columns: Mapping[str, str]
    patterns: tuple[str, ...] = (*PARQUET, *LINES)
    wrong_types: Callable[[pa.Schema], str | None] = lambda schema: None


FORMATS: dict[str, Format] = {
    "nemotron": Format(nemotron.read, nemotron.COLUMNS, PARQUET, nemotron.wrong_types),
    "conversations": Format(conversations.read, {}, LINES),
    "am_rl": Format(am_rl.read, am_rl.COLUMNS),
    "verifiable": Format(verifiable.read, verifiable.COLUMNS),
    "deepcoder": Format(deepcoder.read, deepcoder.COLUMNS),
    "taco": Format(taco.read, taco.COLUMNS),
    "kodcode": Format(kodcode.read, kodcode.COLUMNS),
    "livecodebench": Format(livecodebench.read, livecodebench.COLUMNS),
    "codeforces": Format(codeforces.read, codeforces.COLUMNS),
    "acecode": Format(acecode.read, acecode.COLUMNS),
    "ifeval": Format(ifeval.read, ifeval.COLUMNS),
    "chat": Format(chat.read, chat.COLUMNS),
}
assert set(FORMATS) == set(get_args(FormatName))


def wrong_columns(schema: pa.Schema, format: str) -> str | None:
    """Return what is wrong with a Parquet file's columns, or None.

    Args:
        schema: The file's schema.
        format: One of FORMATS.
    """
    double = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if double:
        return f"column {', '.join(double)} occurs twice, expected each name once"
    wanted = FORMATS[format].columns
    missing = [
        f"{names} ({kind})"
        for names, kind in wanted.items()
        if not set(names.split(" or ")) & set(schema.names)
    ]
    if missing:
        return f"no column {' and no column '.join(missing)}; got {', '.join(schema.names)}"
    return FORMATS[format].wrong_types(schema)


def read_batch(format: str, batch: pa.RecordBatch, limits: ReadLimits) -> list[Row | Refused]:
    """Read a batch of Parquet rows.

    Args:
        format: One of FORMATS.
        batch: Some rows with all columns.
        limits: The number of tests that are kept, and their largest size.

    Returns:
        One Row or Refused per record, in order.
    """
    try:
        return [_read(format, record, limits) for record in batch.to_pylist()]
    except UnicodeDecodeError as error:
        if batch.num_rows == 1:
            return [Refused(Reason.MALFORMED_UTF8, error.object)]
        single_rows = (batch.slice(index, 1) for index in range(batch.num_rows))
        return [record for row in single_rows for record in read_batch(format, row, limits)]


def _read(format: str, record: dict[str, Any], limits: ReadLimits) -> Row | Refused:
    try:
        return FORMATS[format].read(record, limits)
    except Malformed as error:
        return Refused(str(error), _raw(record), error.detail)
    except RecursionError:
        return Refused(Reason.MALFORMED_JSON, _raw(record), "nested too deeply")


def _raw(record: dict[str, Any]) -> str:
    # Not to_json, which does not escape the lone surrogates that the record may have.
    return json.dumps(record, default=str)


def read_line(format: str, line: bytes, limits: ReadLimits) -> Row | Refused:
    """Read one line of JSONL.

    Args:
        format: One of FORMATS.
        line: The line, with or without its end.
        limits: The number of tests that are kept, and their largest size.
    """
    try:
        return FORMATS[format].read(_parsed(line), limits)
    except Malformed as error:
        return Refused(str(error), line.rstrip(b"\r\n"), error.detail)
    except RecursionError:
        return Refused(Reason.MALFORMED_JSON, line.rstrip(b"\r\n"), "nested too deeply")


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        # A byte order mark can only occur at the start of the file's first line.
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(Reason.MALFORMED_UTF8) from error
    value = parse_json(text, Reason.MALFORMED_JSON)
    if not isinstance(value, dict):
        raise Malformed(Reason.MALFORMED_JSON)
    return value
