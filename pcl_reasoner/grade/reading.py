"""Read responses and their problems' ground truths, one batch at a time."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError

_BATCH_ROWS = 256
"""Responses in memory at once: at 100 000 tokens each they take ~150 MB."""
_READ_COLUMNS = ["problem_id", "sample_index", "response", "finish_reason", "n_tokens"]


def pairs(table: Any, first: str, second: str) -> list[tuple[Any, Any]]:
    """Return the values of two columns of a table or batch as one pair per row."""
    return list(zip(table[first].to_pylist(), table[second].to_pylist(), strict=True))


def column_of_problems(folder: Path, column: str) -> dict[str, Any]:
    """Return problem_id -> value of a column, from the folder's clean.parquet."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "clean.parquet", columns=["problem_id", column])
    return dict(pairs(table, "problem_id", column))


class Responses:
    """A folder of responses, with the ground truths of their problems.

    Args:
        folder: Folder with responses/*.parquet.
        problems: Folder with clean.parquet.

    Raises:
        StageError: There are no responses.
    """

    def __init__(self, folder: Path, problems: Path) -> None:
        import pyarrow.parquet as pq

        self.files = sorted((folder / "responses").glob("*.parquet"))
        if not self.files:
            raise StageError(f"{folder}: no responses/*.parquet. Run the stage `sample` first.")
        self.truths: dict[str, str | None] = column_of_problems(problems, "ground_truth")
        self.total: int = sum(pq.read_metadata(file).num_rows for file in self.files)

    def batches(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield Arrow batches of at most 256 rows from all files; ``columns`` None: all columns."""
        import pyarrow.parquet as pq

        for file in self.files:
            yield from pq.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=columns)

    def with_truths(self) -> Iterator[list[tuple[dict[str, Any], str]]]:
        """Yield lists of at most 256 pairs (response, ground truth); errors as in truth_of."""
        for batch in self.batches(_READ_COLUMNS):
            yield [(record, truth_of(record, self.truths)) for record in batch.to_pylist()]


def value_of(problem: str, values: Mapping[str, Any]) -> Any:
    """Return a problem's value from ``values``, a result of column_of_problems.

    Raises:
        StageError: The problem is not in clean.parquet.
    """
    if problem not in values:
        raise StageError(
            f"problem {problem} has responses but is not in clean.parquet: it was removed, or "
            "never checked. Use the problems that were sampled, or sample those that the "
            "contamination stage kept."
        )
    return values[problem]


def truth_of(record: Mapping[str, Any], truths: Mapping[str, str | None]) -> str:
    """Return the ground truth of a response's problem.

    Raises:
        StageError: The problem is not in clean.parquet, or has no ground truth.
    """
    truth = value_of(record["problem_id"], truths)
    if truth is None or not truth.strip():
        raise StageError(
            f"problem {record['problem_id']} has no ground truth, so its responses cannot be "
            "graded. The stage `unique` drops such problems: run it on these rows."
        )
    return truth
