"""Record batches of any size -> a Parquet part with row groups of similar size.

A sample: 5 000 batches, each of 256 rows and 400 KB, become about 60 row groups of 32 MiB. The
rows can also be written as JSON lines: part-00000.parquet, part-00000.jsonl.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pcl_reasoner.core.artifact import atomic_file

ROW_GROUP_BYTES = 32 << 20
"""A row group is closed at this size, measured in Arrow's memory."""


@contextmanager
def atomic_part(
    path: Path, schema: pa.Schema, jsonl: bool = False
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Open a part for writing; it gets its name only when it is complete.

    Equal batches give equal bytes, because the row groups depend only on the batches.

    Args:
        path: The part, ``….parquet``.
        schema: Schema of every batch.
        jsonl: True: also write the rows as JSON lines, beside the part.

    Yields:
        A function that adds a batch of rows to the part.
    """
    # Responses and tests hardly ever repeat, so a dictionary of them would only cost memory.
    short = [name for name in schema.names if name not in ("cot", "checks")]
    pending: list[pa.RecordBatch] = []

    def flush() -> None:
        if any(batch.num_rows for batch in pending):
            writer.write_table(pa.Table.from_batches(pending))
        pending.clear()

    def write(batch: pa.RecordBatch) -> None:
        pending.append(batch)
        if sum(one.nbytes for one in pending) >= ROW_GROUP_BYTES:
            flush()
        for row in batch.to_pylist() if jsonl else ():
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")

    with ExitStack() as stack:
        temporary = stack.enter_context(atomic_file(path))
        writer = stack.enter_context(
            pq.ParquetWriter(temporary, schema, compression="zstd", use_dictionary=short)
        )
        if jsonl:
            temporary_lines = stack.enter_context(atomic_file(path.with_suffix(".jsonl")))
            lines = stack.enter_context(temporary_lines.open("w", encoding="utf-8"))
        yield write
        flush()
