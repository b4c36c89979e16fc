"""Packed rows as MindFormers' own loader and models read them: label i is token i + 1."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pcl_reasoner.pack.rows import Packing
from pcl_reasoner.pack.tokens import IGNORED

STOCK_COLUMNS = ["input_ids", "labels", "actual_seq_len"]
"""What MindFormers' own loader reads of packed rows."""


def stock(packing: Packing) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The packed rows that MindFormers' own loader reads: their columns, and the batches."""
    schema = pa.schema([packing.schema.field(name) for name in STOCK_COLUMNS])
    return schema, shifted(packing.batches())


def shifted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with the columns of MindFormers' own loader, each label one place to the left.

    Args:
        batches: Rows of the pack artifact's columns. A segment's first label is always −100, so
            nothing is carried from one segment into the one before it.
    """
    for batch in batches:
        labels = batch["labels"]
        unshifted = labels.values.to_numpy().reshape(len(labels), -1)
        moved = np.full_like(unshifted, IGNORED)
        moved[:, :-1] = unshifted[:, 1:]
        columns = {name: batch[name] for name in STOCK_COLUMNS}
        columns["labels"] = pa.ListArray.from_arrays(labels.offsets, pa.array(moved.reshape(-1)))
        yield pa.RecordBatch.from_pydict(columns)
