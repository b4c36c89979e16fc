"""Record batches of any size -> a Parquet part with row groups of a fair size.

A sample: 5 000 batches of 256 rows and 400 KB become about 60 row groups of 32 MiB.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_BYTES = 32 << 20
"""A row group is closed at this size, in Arrow's memory."""


class PartWriter:
    """Writes one part; its row groups depend on the batches alone, so equal rows are equal bytes.

    Args:
        path: The part.
        schema: Of every batch.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
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
