"""Stage ``difficulty``: keeps the rows of problems that at least one sample did not solve."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.curate.parts import counts_of, parts_of, split_parts, workspace, write_beside


class DifficultyConfig(StageConfig):
    """Set aside the problems that were solved in every sample."""

    uses_data_engine: ClassVar[bool] = True

    divisor: int = Field(16, gt=0)
    """Samples per problem in a sampling round. If it divides the number of a problem's rows (its
    correct samples), all samples were correct."""


def difficulty(
    config: DifficultyConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Split the rows by whether their problem was solved in every sample.

    The source has a fixed number of samples per problem and contains only the correct responses.
    So the number of a problem's rows is its number of correct samples: 12 rows are 12 of 16
    samples, a pass rate of 0.75, and 20 rows are 20 of the 32 samples of two rounds.

    Args:
        config: The number of samples per round.
        inputs: ``rows``: the artifact of ``convert``.
        output: Gets partial/*.parquet and all_correct/*.parquet, with the columns pass_count and
            pass_rate added.
        context: Has the memory limit, the threads and the data engine.

    Raises:
        StageError: A part cannot be read or lacks columns.

    Source: upstream's difficulty split; problems are set aside if 16 divides their number of rows.
    """
    from pcl_reasoner.curate import queries

    parts = parts_of(inputs["rows"] / "rows", ["problem_id"])
    folders = (output.absolute() / "all_correct", output.absolute() / "partial")
    with workspace(output, context) as (connection, beside):
        for folder in folders:
            folder.mkdir()
        queries.count_passes(connection, parts)
        info = queries.pass_figures(connection, config.divisor)
        for part in parts:
            write_beside(queries.pass_columns(connection, part, config.divisor), beside, part)
        all_correct, kept = split_parts(parts, beside, "all_correct", folders, context)
    if not kept:
        context.warn("every problem was solved in every sample. Check difficulty.divisor.")
    return counts_of(all_correct + kept, kept, {"all_correct": all_correct}, info)
