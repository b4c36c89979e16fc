"""Stage ``unique``: keeps one row per problem."""

from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.curate.parts import counts_of, parts_of, workspace


class UniqueConfig(StageConfig):
    """Keep one row per problem."""

    jsonl: bool = False
    """True: the problems are also written as JSON lines, to problems.jsonl."""


def unique(
    config: UniqueConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """For every problem, keep the first row that has a ground truth.

    Args:
        config: Whether JSON lines are also written.
        inputs: ``rows``: the artifact of ``lengths``.
        output: Gets problems.parquet, and problems.jsonl if ``config`` asks for it.
        context: Has the memory limit and the threads.

    Raises:
        StageError: A part cannot be read or lacks columns.
    """
    from pcl_reasoner.core.schemas import PROBLEMS
    from pcl_reasoner.curate import queries
    from pcl_reasoner.curate.part_writer import atomic_part

    needed = [*PROBLEMS.names[:-1], "row_id"]
    parts = parts_of(inputs["rows"] / "rows", needed)
    problems = output / "problems.parquet"
    with workspace(output, context) as (connection, _):
        queries.find_answered(connection, parts)
        found = queries.unique_figures(connection, parts)
        with atomic_part(problems, PROBLEMS, config.jsonl) as write:
            for batch in queries.first_rows(connection, parts):
                write(batch.cast(PROBLEMS))
    read, answered, kept = found["rows"], found["answered"], found["problems"]
    if not kept:
        context.warn("no row has a ground truth. Check that the source has answers.")
    dropped = {"blank_ground_truth": read - answered, "repeated_problem": answered - kept}
    return counts_of(read, kept, dropped, {"conflicting_ground_truths": found["conflicting"]})
