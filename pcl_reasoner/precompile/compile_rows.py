"""Writes artificial packed rows: a compile needs the shapes of one batch, not its values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcl_reasoner.core.schemas import PACKED_ROWS
from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.tokens import IGNORED

_A_TOKEN = ("input_ids", "labels", "segment_ids", "old_log_probs")


def write_rows(folder: Path, count: int, length: int) -> None:
    """Write rows of one segment each; all its tokens but the first are trained.

    Args:
        folder: An existing folder.
        count: Number of rows.
        length: Tokens per row.
    """
    import pyarrow as pa

    arrays = [_column(field, length) for field in PACKED_ROWS]
    row = pa.RecordBatch.from_arrays(arrays, schema=PACKED_ROWS)
    write_arrow_folder(folder, PACKED_ROWS, (row for _ in range(count)))


def _column(field: Any, length: int) -> Any:
    """One row of a column: a list with one value per token, or one per segment."""
    import pyarrow as pa

    value: list[Any] = [0] * length if field.name in _A_TOKEN else [0]
    if field.name == "labels":
        value = [IGNORED, *value[1:]]
    elif field.name == "actual_seq_len":
        value = [length]
    if pa.types.is_string(field.type.value_type):
        value = [str(item) for item in value]
    return pa.array([value], field.type)
