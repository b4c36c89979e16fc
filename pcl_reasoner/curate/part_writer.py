"""Record batches of any size -> a Parquet part with row groups of similar size.

A sample: 5 000 batches of 256 rows and 400 KB become about 60 row groups of 32 MiB. On request the
same rows are also written as JSON lines: part-00000.parquet, part-00000.jsonl.
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
"""A row group is closed at this size, measured in Arrow's memory."""


@contextmanager
def whole_part(
    path: Path, schema: pa.Schema, jsonl: bool = False
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Open a part for writing; it gets its name only when it is complete.

    Args:
        path: The part, ``….parquet``.
        schema: Schema of every batch.
        jsonl: True: also write the rows as JSON lines, beside the part.

    Yields:
        A function that adds a batch of rows to the part.
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
    """Write rows as JSON lines, with the keys in the order of the columns."""
    for row in batch.to_pylist():
        handle.write(json.dumps(row, ensure_ascii=False) + "\n")


class PartWriter:
    """Writes one part. Its row groups depend only on the batches: equal batches, equal bytes.

    Args:
        path: The part.
        schema: Schema of every batch.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        # Responses hardly ever repeat, so a dictionary of them would only cost memory.
        short = [name for name in schema.names if name != "cot"]
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=short)
        self._pending: list[pa.RecordBatch] = []
        self._bytes = 0

    def __enter__(self) -> PartWriter:
        """Return this writer."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Write the pending batches and the footer."""
        self._flush()
        self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch of rows."""
        self._pending.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if any(batch.num_rows for batch in self._pending):
            self._writer.write_table(pa.Table.from_batches(self._pending))
        self._pending = []
        self._bytes = 0
