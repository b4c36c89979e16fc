"""Records of published data sets through convert's reader, from files as the hub has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pcl_reasoner.formats.reading import read_batch, read_line, wrong_columns
from pcl_reasoner.formats.records import ReadLimits, Refused, Row

Records = list[dict[str, Any]]
DEFAULT = ReadLimits()
MESSAGES = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))


def read_parquet(
    format: str, records: Records, folder: Path, schema: pa.Schema, limits: ReadLimits = DEFAULT
) -> list[Row | Refused]:
    """Write records as Parquet with the columns' published types, and read them."""
    file = folder / f"{format}.parquet"
    pq.write_table(pa.Table.from_pylist(records, schema), file)
    assert wrong_columns(pq.read_schema(file), format) is None
    batches = pq.ParquetFile(file).iter_batches()
    return [row for batch in batches for row in read_batch(format, batch, limits)]


def read_jsonl(format: str, records: Records, limits: ReadLimits = DEFAULT) -> list[Row | Refused]:
    """Write records as lines of JSON, and read them."""
    return [read_line(format, json.dumps(one).encode() + b"\n", limits) for one in records]


def row(found: Row | Refused) -> Row:
    """The record, which must have become a row."""
    assert isinstance(found, Row), found
    return found


def refused(found: Row | Refused) -> tuple[str, str]:
    """Reason and detail of a record that must have been refused."""
    assert isinstance(found, Refused), found
    return found.reason, found.detail


def checks(found: Row | Refused) -> dict[str, Any]:
    """What a verifier gets."""
    return json.loads(row(found).checks)


def cases_of(found: Row | Refused) -> dict[str, Any]:
    """The tests of a problem: format, cases, entry …"""
    return checks(found)["tests"]
