"""Segments -> packed rows, as a MindFormers handler over pcl_reasoner.pack.rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.rows import SCHEMA, plan_packing


class SegmentPackingHandler:
    """Packs InstructionHandler's segments into rows; see plan_packing.

    Args:
        seq_length: Tokens a row.
        seed: Of the rows' order.
        pad_token_id: Fills a row's end.
        max_segments: Segments a row at most.
        one_a_row: True for one segment a row.
        over_length: What becomes of segments longer than a row.
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
        output: str | None = None,
        **unused: Any,
    ) -> None:
        self.settings = (seq_length, max_segments, seed, pad_token_id, one_a_row, over_length)
        self.output = output

    def __call__(self, dataset: Any) -> Any:
        """A datasets.Dataset of segments -> one of rows."""
        import pyarrow as pa
        from datasets import Dataset, load_from_disk

        # A selection or shuffle is an index over the table; packing reads the table itself.
        whole = dataset if dataset._indices is None else dataset.flatten_indices()
        batches = plan_packing(whole.data.table, *self.settings).batches()
        if self.output is None:
            return Dataset(pa.Table.from_batches(batches, SCHEMA))
        Path(self.output).mkdir(parents=True, exist_ok=True)
        write_arrow_folder(Path(self.output), SCHEMA, batches)
        return load_from_disk(self.output)
