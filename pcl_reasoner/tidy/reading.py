"""Reads an artifact's responses batch by batch, and writes them again with other rows or columns.

    sample: responses/part-00000.parquet      select: responses.parquet

The rewritten files have the same names, so that every stage that reads responses can read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.curate.parts import fixed_batches, open_parquet

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_BATCH_ROWS = 256
"""Responses in memory at once: at 100 000 tokens each they take ~150 MB."""
Change = Callable[[str, int, "pa.RecordBatch"], "pa.RecordBatch"]
"""(file, index of the batch's first row in the file, record batch) -> the new record batch."""


class ResponseFiles:
    """The Parquet files with the responses of ``sample``, ``select`` or a stage between them.

    Args:
        folder: The artifact.

    Raises:
        StageError: There are no responses, or the files have different columns.
    """

    def __init__(self, folder: Path) -> None:
        found = (sorted(folder.glob(name)) for name in ("responses/*.parquet", "responses.parquet"))
        self.folder = folder
        self.files = next((files for files in found if files), [])
        if not self.files:
            raise StageError(
                f"{folder}: no responses/*.parquet and no responses.parquet. Give the stage the "
                "input responses: sample, select, or another stage that writes responses."
            )
        self.total: int = sum(open_parquet(file).metadata.num_rows for file in self.files)
        if not self.total:
            raise StageError(
                f"{folder}: no responses in {len(self.files)} files. Check the stage that wrote it."
            )
        self.schema: pa.Schema = open_parquet(self.files[0]).schema_arrow.remove_metadata()
        """The columns of all files."""
        for file in self.files[1:]:
            if not open_parquet(file).schema_arrow.equals(self.schema, check_metadata=False):
                raise StageError(
                    f"{file}: its columns differ from those of {self.files[0].name}. Write both "
                    "with the same stage."
                )

    def require(self, columns: Sequence[str], hint: str) -> None:
        """Raise an error if columns are missing.

        Args:
            columns: Their names.
            hint: The end of the error: what to do.

        Raises:
            StageError: A column is missing.
        """
        absent = [name for name in columns if name not in self.schema.names]
        if absent:
            raise StageError(f"{self.files[0]}: no column {', '.join(absent)}. {hint}")

    def batches(
        self, columns: list[str] | None = None
    ) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Yield (file, index of its first row in the file, record batch) for all responses.

        Args:
            columns: The columns to read; None: all.
        """
        for file in self.files:
            for first, batch in _batches(file, columns):
                yield self._name(file), first, batch

    def rewrite(self, output: Path, schema: pa.Schema, change: Change) -> int:
        """Write all files again, one batch at a time.

        Args:
            output: The folder of the new artifact.
            schema: The columns of the new files.
            change: Makes the new batch of each batch; it may have fewer rows.

        Returns:
            Number of rows written.
        """
        import pyarrow.parquet as pq

        kept = 0
        for file in self.files:
            target = output / self._name(file)
            target.parent.mkdir(exist_ok=True)
            with pq.ParquetWriter(target, schema, compression="zstd") as writer:
                for first, batch in _batches(file, None):
                    new = change(self._name(file), first, batch)
                    kept += new.num_rows
                    if new.num_rows:
                        writer.write_batch(new)
        return kept

    def _name(self, file: Path) -> str:
        return file.relative_to(self.folder).as_posix()


def _batches(file: Path, columns: list[str] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (index of the first row, record batch) for one file."""
    first = 0
    for batch in fixed_batches(file, _BATCH_ROWS, columns):
        yield first, batch
        first += batch.num_rows


def tokens_at(column: pa.ListArray, index: int) -> npt.NDArray[np.int32]:
    """Return the token ids of one row as an array, int32 [n]; empty if the row has none.

    Args:
        column: A list column of a record batch.
        index: The row.
    """
    import numpy as np

    values = column[index].values
    return np.empty(0, np.int32) if values is None else values.to_numpy()
