"""Packs segments into rows: pcl_reasoner.pack.rows as a MindFormers handler.

handler:
  - {type: SegmentPackingHandler, seq_length: 4096, seed: 42, pad_token_id: 151643}
"""

from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.handlers.common import report
from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.config import OverLength
from pcl_reasoner.pack.rows import plan_packing
from pcl_reasoner.pack.stock import stock


class SegmentPackingHandler:
    """Packs InstructionHandler's segments into rows; see plan_packing.

    Args:
        seq_length: Tokens per row. All arguments before ``shift_labels`` are as in plan_packing.
        shift_labels: True for MindFormers' own loader and models, which expect that label i is
            token i + 1; False for PclPackedDataLoader, which shifts the labels itself.
        output: Folder to write the rows to; None keeps them in memory (small data sets).
    """

    def __init__(
        self,
        seq_length: int,
        seed: int,
        pad_token_id: int,
        max_segments: int = 128,
        one_segment_per_row: bool = False,
        over_length: OverLength = "error",
        shift_labels: bool = False,
        output: str | None = None,
        **unused: Any,
    ) -> None:
        if "one_a_row" in unused:
            raise InputError("SegmentPackingHandler: one_a_row is called one_segment_per_row now.")
        self.rules = seq_length, max_segments, seed, pad_token_id, one_segment_per_row, over_length
        self.shift_labels, self.output = shift_labels, output

    def __call__(self, dataset: Any) -> Any:
        """Pack a datasets.Dataset of segments into a datasets.Dataset of rows."""
        import pyarrow as pa
        from datasets import Dataset, load_from_disk

        # A selection or shuffle is only an index over the table, and packing reads the table.
        flat = dataset if dataset._indices is None else dataset.flatten_indices()
        packing = plan_packing(flat.data.table, *self.rules)
        report("SegmentPackingHandler", len(flat), len(packing.kept), packing.dropped)
        plain = packing.schema, packing.batches()
        schema, batches = stock(packing) if self.shift_labels else plain
        if self.output is None:
            return Dataset(pa.Table.from_batches(batches, schema))
        Path(self.output).mkdir(parents=True, exist_ok=True)
        write_arrow_folder(Path(self.output), schema, batches)
        return load_from_disk(self.output)
