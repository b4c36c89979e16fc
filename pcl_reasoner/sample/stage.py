"""Stage ``sample``: n responses per problem, from a server or from the local sampler.

responses/part-00000.parquet, one row per response:

    problem_id 5c18d5f0a1b2c3d4, sample_index 0, response "<think>3+5=8</think>…", token_ids
    [27, …, 2], finish_reason stop, n_tokens 41, seed 7, seconds null, server local
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.inference.settings import SamplingConfig

if TYPE_CHECKING:
    from pcl_reasoner.inference.dialogue import Problem
    from pcl_reasoner.inference.response_log import ResponseLog

_LOG = "responses.partial.jsonl"
_LENGTH_COLUMN = "mean_cot_tokens"
"""Column of clean.parquet: mean length of other models' responses, to estimate ours."""
_GROUP_ROWS = 64
"""Rows in memory at once; a published response has up to 131 072 tokens."""


class SampleConfig(SamplingConfig):
    """How responses are sampled; evaluation has all of these fields too."""


def sample(
    config: SampleConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Sample n responses per problem; writes responses/part-00000.parquet and sampling.json.

    Args:
        config: The sampling fields.
        inputs: ``problems`` (clean.parquet) and ``policy`` (a Hugging Face folder).
        output: The stage's folder; responses that a killed run left in it are kept.
        context: ``placement.server_urls`` names the servers, or ``placement.sampling`` says
            how to start one.

    Raises:
        StageError: An input lacks a file or column, or the server or sampler fails.
    """
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.sample.generate import describe, generate

    problems, repeated = read_problems(inputs["problems"] / "clean.parquet")
    sampling_file = output / "sampling.json"
    # The log is deleted last: sampling.json without a log means that everything was written.
    if (output / _LOG).exists() or not sampling_file.exists():
        sampling = describe(config, inputs["policy"])
        records = generate(problems, config, inputs["policy"], output / _LOG, context)
        _write_responses(output / "responses", records)
        write_json(sampling_file, {**sampling, "responses": records.info()})
        records.delete()
    figures = json.loads(sampling_file.read_text(encoding="utf-8"))["responses"]
    kept = len(problems) * config.n
    dropped = {"repeated_problem": repeated * config.n} if repeated else {}
    return Counts(
        unit="responses",
        read=kept + sum(dropped.values()),
        kept=kept,
        dropped=dropped,
        info={"engine": config.engine, "problems": len(problems), **figures},
    )


def read_problems(path: Path) -> tuple[list[Problem], int]:
    """Read the problems to sample; of rows with equal problem_ids, only the first is used.

    Returns:
        The problems, sorted by problem_id, and the number of rows that repeat a problem.

    Raises:
        StageError: The file is missing, or has no column problem_id or problem.
    """
    import pyarrow.parquet as pq

    from pcl_reasoner.inference.dialogue import Problem

    table = pq.read_table(path, columns=_problem_columns(path))
    found: dict[str, Problem] = {}
    for row in table.to_pylist():
        problem = Problem(row["problem_id"], row["problem"], row.get(_LENGTH_COLUMN))
        found.setdefault(problem.id, problem)
    return [found[name] for name in sorted(found)], len(table) - len(found)


def _problem_columns(path: Path) -> list[str]:
    """Return the columns that sampling reads, with _LENGTH_COLUMN if the file has it."""
    import pyarrow.parquet as pq

    if not path.is_file():
        raise StageError(f"{path}: does not exist. The role problems needs a stage that writes it.")
    names = pq.read_schema(path).names
    absent = [name for name in ("problem_id", "problem") if name not in names]
    if absent:
        raise StageError(f"{path}: no column {', '.join(absent)}; it has {', '.join(names)}.")
    lengths = [_LENGTH_COLUMN] if _LENGTH_COLUMN in names else []
    return ["problem_id", "problem", *lengths]


def _write_responses(folder: Path, records: ResponseLog) -> None:
    """Write all records, sorted by problem_id and sample_index, one row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.core.schemas import RESPONSES

    folder.mkdir(exist_ok=True)
    keys = records.keys()
    with pq.ParquetWriter(folder / "part-00000.parquet", RESPONSES, compression="zstd") as writer:
        for start in range(0, len(keys), _GROUP_ROWS):
            rows = list(records.read(keys[start : start + _GROUP_ROWS]))
            writer.write_table(pa.Table.from_pylist(rows, schema=RESPONSES))
