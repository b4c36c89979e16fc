"""Converts packed rows for MindFormers' own loader: position i gets token i + 1 as its label."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pcl_reasoner.pack.rows import Packing
from pcl_reasoner.pack.tokens import IGNORED

STOCK_COLUMNS = ["input_ids", "labels", "actual_seq_len"]
"""The columns of packed rows that MindFormers' own loader reads."""


def stock(packing: Packing) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of the rows for MindFormers' own loader."""
    schema = pa.schema([packing.schema.field(name) for name in STOCK_COLUMNS])
    return schema, map(_shifted, packing.batches())


def _shifted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that MindFormers' own loader reads, each label moved left by one index.

    A segment's first label is always −100, so no label moves into the previous segment.
    """
    labels = batch["labels"]
    unshifted = labels.values.to_numpy().reshape(len(labels), -1)
    moved = np.full_like(unshifted, IGNORED)
    moved[:, :-1] = unshifted[:, 1:]
    columns = {name: batch[name] for name in STOCK_COLUMNS}
    columns["labels"] = pa.ListArray.from_arrays(labels.offsets, pa.array(moved.reshape(-1)))
    return pa.RecordBatch.from_pydict(columns)
