"""Read responses and their problems' ground truths, one batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError

if TYPE_CHECKING:
    from pcl_reasoner.core.schemas import Key

_BATCH_ROWS = 256
"""Responses in memory at once: at 100 000 tokens each they take ~150 MB."""
READ_COLUMNS = ["problem_id", "sample_index", "response", "finish_reason", "n_tokens"]


def response_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder of responses.

    Raises:
        StageError: There are none.
    """
    files = sorted((folder / "responses").glob("*.parquet"))
    if not files:
        raise StageError(f"{folder}: no responses/*.parquet. Run the stage `sample` first.")
    return files


def batches(files: list[Path], columns: list[str] | None) -> Iterator[Any]:
    """Yield record batches of all files, 256 rows at most; columns None: all columns."""
    import pyarrow.parquet as pq

    for file in files:
        yield from pq.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=columns)


def keys_of(table: Any) -> list[Key]:
    """The (problem_id, sample_index) of every row of a table or batch."""
    problems = table["problem_id"].to_pylist()
    return list(zip(problems, table["sample_index"].to_pylist(), strict=True))


def ground_truths(folder: Path) -> dict[str, str | None]:
    """problem_id -> ground truth, from clean.parquet."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "clean.parquet", columns=["problem_id", "ground_truth"])
    return dict(
        zip(table["problem_id"].to_pylist(), table["ground_truth"].to_pylist(), strict=True)
    )


@dataclass(frozen=True)
class Responses:
    """The responses to grade, with their ground truths.

    Args:
        files: The files responses/*.parquet.
        truths: problem_id -> ground truth.
    """

    files: list[Path]
    truths: Mapping[str, str | None]

    @cached_property
    def total(self) -> int:
        """The number of responses."""
        import pyarrow.parquet as pq

        return sum(pq.ParquetFile(file).metadata.num_rows for file in self.files)

    def batches(self) -> Iterator[list[tuple[dict[str, Any], str]]]:
        """Yield (response, its ground truth) pairs, 256 at most; errors as in truth_of."""
        for batch in batches(self.files, READ_COLUMNS):
            yield [(record, truth_of(record, self.truths)) for record in batch.to_pylist()]


def check_known(problem: str, truths: Mapping[str, str | None]) -> None:
    """Raise StageError for a response to a problem that is not in clean.parquet."""
    if problem not in truths:
        raise StageError(
            f"problem {problem} has responses but is not in clean.parquet, so it was removed or "
            "never checked. Sample the problems that the contamination stage kept."
        )


def truth_of(record: Mapping[str, Any], truths: Mapping[str, str | None]) -> str:
    """The ground truth of a response's problem.

    Raises:
        StageError: The problem is not in clean.parquet, or has no ground truth.
    """
    check_known(record["problem_id"], truths)
    truth = truths[record["problem_id"]]
    if truth is None or not truth.strip():
        raise StageError(
            f"problem {record['problem_id']} has no ground truth, so its responses cannot be "
            "graded. The stage `unique` drops such problems: run it on these rows."
        )
    return truth
