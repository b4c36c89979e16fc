"""Stage ``unique``: keeps one row per problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.curate.parts import (
    counts_of,
    open_parquet,
    parts_of,
    record_batches,
    with_columns,
    workspace,
)

if TYPE_CHECKING:
    import pyarrow as pa

MEASURED = ("pass_rate", "mean_cot_tokens")
"""Columns that difficulty and lengths add."""


class UniqueConfig(StageConfig):
    """Keep one row per problem."""

    jsonl: bool = False
    """True: the problems are also written as JSON lines, to problems.jsonl."""
    measured: bool = True
    """True: the rows must have pass_rate and mean_cot_tokens, from difficulty and lengths. False:
    rows may come straight from convert, as queries without responses do; the columns are null."""


def unique(
    config: UniqueConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """For every problem, keep the first row with a ground truth or checks.

    Such a row has a ground truth or checks, or its kind is chat.

    Args:
        config: Whether JSON lines are also written, and whether rows must be measured.
        inputs: ``rows``: the artifact of ``lengths`` or, if ``config`` allows it, of ``convert``.
        output: Gets problems.parquet, and problems.jsonl if ``config`` asks for it.
        context: Has the memory limit and the threads.

    Raises:
        StageError: A part cannot be read or lacks columns.
    """
    from pcl_reasoner.core.schemas import PROBLEMS
    from pcl_reasoner.curate import queries
    from pcl_reasoner.curate.part_writer import atomic_part

    needed = ["problem_id", "problem", "ground_truth", *(MEASURED if config.measured else ())]
    hint = "Check which stage the recipe reads here"
    if config.measured:
        hint += ", or set unique.measured to false for rows without them"
    parts = parts_of(inputs["rows"] / "rows", [*needed, "row_id"], f"{hint}.")
    problems = output / "problems.parquet"
    with workspace(output, context) as (connection, _):
        queries.find_checkable(connection, parts)
        found = queries.unique_figures(connection, parts)
        with atomic_part(problems, PROBLEMS, config.jsonl) as write:
            for part in parts:
                for batch in _chosen(part, queries.first_rows(connection, part)):
                    write(batch)
    read, checkable, kept = found["rows"], found["checkable"], found["problems"]
    if not kept:
        context.warn("no row has a ground truth or checks. Check that the source has answers.")
    dropped = {"blank_ground_truth": read - checkable, "repeated_problem": checkable - kept}
    return counts_of(read, kept, dropped, {"conflicting_ground_truths": found["conflicting"]})


def _chosen(part: Path, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part with these numbers, with the columns of problems.parquet.

    The rows are streamed: the tests of a few hundred problems can have gigabytes.
    """
    import pyarrow as pa

    from pcl_reasoner.core.schemas import PROBLEMS

    present = open_parquet(part).schema_arrow.names
    columns = [name for name in ("row_id", *PROBLEMS.names) if name in present]
    wanted, first = set(numbers), 0
    for batch in record_batches(part, columns) if wanted else ():
        mask = pa.array([first + row in wanted for row in range(batch.num_rows)], pa.bool_())
        first += batch.num_rows
        kept = batch.filter(mask)
        if kept.num_rows:
            renamed = ["source_row_id" if name == "row_id" else name for name in columns]
            yield with_columns(kept.select(columns).rename_columns(renamed), PROBLEMS)
