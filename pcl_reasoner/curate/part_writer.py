"""Record batches of any size -> a Parquet part with row groups of a fair size.

A sample: 5 000 batches of 256 rows and 400 KB become about 60 row groups of 32 MiB. On request the
same rows stand beside it as JSON lines: part-00000.parquet, part-00000.jsonl.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from pcl_reasoner.core.engine import whole_file

ROW_GROUP_BYTES = 32 << 20
"""A row group is closed at this size, in Arrow's memory."""


@contextmanager
def whole_part(
    path: Path, schema: pa.Schema, jsonl: bool = False
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """A function that adds rows to a part; the part has its name when it is whole.

    Args:
        path: The part, ``….parquet``.
        schema: Of every batch.
        jsonl: Write the rows as JSON lines, too, beside it.
    """
    with ExitStack() as stack:
        writer = stack.enter_context(PartWriter(stack.enter_context(whole_file(path)), schema))
        if not jsonl:
            yield writer.write
            return
        lines = stack.enter_context(whole_file(path.with_suffix(".jsonl")))
        handle = stack.enter_context(lines.open("w", encoding="utf-8"))

        def write(batch: pa.RecordBatch) -> None:
            writer.write(batch)
            write_lines(batch, handle)

        yield write


def write_lines(batch: pa.RecordBatch, handle: TextIO) -> None:
    """Write rows as JSON lines, keys in the columns' order."""
    for row in batch.to_pylist():
        handle.write(json.dumps(row, ensure_ascii=False) + "\n")


class PartWriter:
    """Writes one part; its row groups depend on the batches alone, so equal rows are equal bytes.

    Args:
        path: The part.
        schema: Of every batch.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        # A dictionary of responses, hardly any of which stands twice, only costs memory.
        short = [name for name in schema.names if name != "cot"]
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=short)
        self._pending: list[pa.RecordBatch] = []
        self._bytes = 0

    def __enter__(self) -> PartWriter:
        """Begin."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Write what is pending and the footer."""
        self._flush()
        self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._pending.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if any(batch.num_rows for batch in self._pending):
            self._writer.write_table(pa.Table.from_batches(self._pending))
        self._pending = []
        self._bytes = 0
