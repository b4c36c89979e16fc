"""Stage ``lengths``: keeps the rows of problems with long responses."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.curate.parts import counts_of, parts_of, split_parts, workspace, write_beside
from pcl_reasoner.data_engine.tasks import connected


class LengthsConfig(StageConfig):
    """Keep the problems with long responses."""

    uses_data_engine: ClassVar[bool] = True

    min_mean_tokens: int = Field(ge=0)
    """Lowest mean response length, in tokens, with which a problem is kept."""
    inclusive: bool = True
    """True: a mean equal to min_mean_tokens is kept (>=); False: it is not (>)."""
    skip_short: bool = True
    """True: if a problem has too few bytes to be kept, its responses are not tokenised."""


def lengths(
    config: LengthsConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Keep the problems whose responses are long on average.

    Args:
        config: The minimum mean length of a problem's responses, in tokens.
        inputs: ``rows``: the artifact of ``difficulty``; ``tokenizer``: a model folder.
        output: Gets rows/*.parquet, with the columns cot_tokens and mean_cot_tokens added, and
            histogram.json.
        context: Has the memory limit, the threads and the data engine.

    Raises:
        StageError: There is no tokenizer, or a part cannot be read or lacks columns.

    Source: upstream's mean length filter, >= 32 000 in its code and "over 32K" in its README.
    """
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.curate import measuring, queries

    parts = parts_of(inputs["rows"] / "partial", ["problem_id", "cot"])
    tokenizer = inputs["tokenizer"].absolute() / "tokenizer.json"
    measuring.opened(tokenizer, fast=False)
    limit = (config.min_mean_tokens, config.inclusive)
    target = output.absolute() / "rows"
    target.mkdir()
    with workspace(output, context) as (connection, folder), connected(context.placement.data):
        wanted, tokens, beside = None, folder / "tokens", folder / "beside"
        if config.skip_short:
            wanted = measuring.write_wanted(connection, parts, tokenizer, limit, folder, context)
        counted = measuring.measure(parts, tokenizer, wanted, tokens, context)
        measured = [tokens / counted["library"] / part.name for part in parts]
        queries.totals(connection, "means", "cot_tokens", measured)
        for part, path in zip(parts, measured, strict=True):
            write_beside(queries.length_columns(connection, path, *limit), beside, part)
        kept, short = split_parts(parts, beside, "long", (target, None), context)
        histogram = queries.length_histogram(connection, measured)
        info = queries.length_figures(connection, *limit)
    histogram |= {"threshold": config.min_mean_tokens, "inclusive": config.inclusive}
    write_json(output / "histogram.json", histogram)
    if not kept:
        context.warn("no problem is long enough. Check lengths.min_mean_tokens.")
    return counts_of(kept + short, kept, {"short_mean_cot": short}, {**info, "tokens": counted})
