"""Segments -> packed rows, as a MindFormers handler over pcl_reasoner.pack.rows.

handler:
  - {type: SegmentPackingHandler, seq_length: 4096, seed: 42, pad_token_id: 151643}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pcl_reasoner.handlers.report import report

from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.rows import plan_packing
from pcl_reasoner.pack.tokens import IGNORED

if TYPE_CHECKING:
    import pyarrow as pa

STOCK_COLUMNS = ["input_ids", "labels", "actual_seq_len"]
"""What MindFormers' own loader reads of packed rows."""


class SegmentPackingHandler:
    """Packs InstructionHandler's segments into rows; see plan_packing.

    Args:
        seq_length: Tokens a row.
        seed: Of the rows' order.
        pad_token_id: Fills a row's end.
        max_segments: Segments a row at most.
        one_a_row: True for one segment a row.
        over_length: What becomes of segments longer than a row.
        shift_labels: True for MindFormers' own loader and models, which expect that label i is
            token i + 1; False for PclPackedDataLoader, which shifts them itself.
        output: Folder to write the rows to; None keeps them in memory (small sets).
        unused: The rest of MindFormers' keywords.
    """

    def __init__(
        self,
        seq_length: int,
        seed: int,
        pad_token_id: int,
        max_segments: int = 128,
        one_a_row: bool = False,
        over_length: Literal["error", "drop", "truncate"] = "error",
        shift_labels: bool = False,
        output: str | None = None,
        **unused: Any,
    ) -> None:
        self.settings = (seq_length, max_segments, seed, pad_token_id, one_a_row, over_length)
        self.shift_labels = shift_labels
        self.output = output

    def __call__(self, dataset: Any) -> Any:
        """A datasets.Dataset of segments -> one of rows."""
        import pyarrow as pa
        from datasets import Dataset, load_from_disk

        # A selection or shuffle is an index over the table; packing reads the table itself.
        whole = dataset if dataset._indices is None else dataset.flatten_indices()
        packing = plan_packing(whole.data.table, *self.settings)
        report("SegmentPackingHandler", len(whole), len(packing.kept), packing.dropped)
        schema, batches = packing.schema, packing.batches()
        if self.shift_labels:
            schema = pa.schema([schema.field(name) for name in STOCK_COLUMNS])
            batches = shifted(batches)
        if self.output is None:
            return Dataset(pa.Table.from_batches(batches, schema))
        Path(self.output).mkdir(parents=True, exist_ok=True)
        write_arrow_folder(Path(self.output), schema, batches)
        return load_from_disk(self.output)


def shifted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with the columns of MindFormers' own loader, each label one place to the left.

    Args:
        batches: Rows of the pack artifact's columns. A segment's first label is always −100, so
            nothing is carried from one segment into the one before it.
    """
    import numpy as np
    import pyarrow as pa

    for batch in batches:
        labels = batch["labels"]
        unshifted = labels.values.to_numpy().reshape(len(labels), -1)
        moved = np.full_like(unshifted, IGNORED)
        moved[:, :-1] = unshifted[:, 1:]
        columns = {name: batch[name] for name in STOCK_COLUMNS}
        columns["labels"] = pa.ListArray.from_arrays(labels.offsets, pa.array(moved.reshape(-1)))
        yield pa.RecordBatch.from_pydict(columns)
