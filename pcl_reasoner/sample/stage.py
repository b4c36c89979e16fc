"""Stage ``sample``: n responses per problem, from a server or from the local sampler.

responses/part-00000.parquet, one row per response:

    problem_id 5c18d5f0a1b2c3d4, sample_index 0, response "<think>3+5=8</think>…", token_ids
    [27, …, 2], finish_reason stop, n_tokens 41, seed 7, seconds null, server local
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.json_lines import own_json
from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.core.stage import Counts, ServerNeeds, StageContext
from pcl_reasoner.curate.parts import open_parquet, read_parquet
from pcl_reasoner.inference.settings import SamplingConfig

if TYPE_CHECKING:
    from pcl_reasoner.inference.answer_log import AnswerLog
    from pcl_reasoner.inference.dialogue import Problem

_LOG = "responses.partial.jsonl"
_LENGTH_COLUMN = "mean_cot_tokens"
"""Column of clean.parquet: mean length of other models' responses, to estimate ours."""
_OPTIONAL_COLUMNS = (_LENGTH_COLUMN, "kind")
_GROUP_ROWS = 64
"""Rows in memory at once; a published response has up to 131 072 tokens."""


class SampleConfig(SamplingConfig):
    """Which problems are sampled, and how; evaluation has the sampling fields too."""

    kinds: list[Kind] | None = Field(None, min_length=1)
    """Kinds of problems that are sampled; None: all. The others are counted as ``other_kind``."""

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """The policy's servers; none if the responses are recorded."""
        return [] if "recorded" in roles else super().servers(roles)


def sample(
    config: SampleConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Sample n responses per problem; writes responses/part-00000.parquet and sampling.json.

    Args:
        config: The sampling fields.
        inputs: ``problems`` (clean.parquet) and ``policy`` (a Hugging Face folder). With the input
            ``recorded``, a folder with responses/*.parquet, no model is asked: the responses are
            taken from there. With ``proof``, what a stage `prove` of the policy wrote, every start
            of a server is compared with it first.
        output: The stage's folder; responses that a killed run left in it are kept.
        context: ``placement.server_urls`` names the servers, or ``placement.sampling`` says
            how to start one.

    Raises:
        StageError: An input lacks a file or column, or the server or sampler fails.
    """
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.sample.generate import describe, generate

    problems, left_out = _problems_to_sample(config, inputs["problems"] / "clean.parquet")
    if "recorded" in inputs:
        names = [problem.id for problem in problems]
        return _recorded(config, names, left_out, inputs["recorded"], output)
    sampling_file = output / "sampling.json"
    # The log is deleted last: sampling.json without a log means that everything was written.
    if (output / _LOG).exists() or not sampling_file.exists():
        sampling = describe(config, inputs["policy"])
        log, proof = output / _LOG, inputs.get("proof")
        records = generate(problems, config, inputs["policy"], log, context, proof)
        _write_responses(output / "responses", records)
        write_json(sampling_file, {**sampling, "responses": records.info()})
        records.delete()
    figures = own_json(sampling_file)["responses"]
    kept = len(problems) * config.n
    return Counts(
        unit="responses",
        read=kept + sum(left_out.values()),
        kept=kept,
        dropped=left_out,
        info={"engine": config.engine, "problems": len(problems), **figures},
    )


def _recorded(
    config: SampleConfig,
    names: list[str],
    left_out: Mapping[str, int],
    recorded: Path,
    output: Path,
) -> Counts:
    """Take the responses that are recorded."""
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.inference.answer_log import AnswerLog
    from pcl_reasoner.sample.recorded import copy_recorded

    (output / _LOG).unlink(missing_ok=True)
    log = AnswerLog(output / _LOG)
    try:
        found = copy_recorded(recorded, set(names), config.n, log)
        _write_responses(output / "responses", log)
    finally:
        log.delete()
    write_json(output / "sampling.json", {"engine": "recorded", "n": config.n, "responses": found})
    dropped = {"not_recorded": found["not_recorded"], **left_out}
    return Counts(
        unit="responses",
        read=found["taken"] + sum(dropped.values()),
        kept=found["taken"],
        dropped={reason: number for reason, number in dropped.items() if number},
        info={"engine": "recorded", "problems": len(names), **found},
    )


def _problems_to_sample(config: SampleConfig, path: Path) -> tuple[list[Problem], dict[str, int]]:
    """Return the problems to sample, and the number of responses that are left out, by reason.

    Raises:
        StageError: No problem is of the kinds to sample.
    """
    found, repeated = read_problems(path)
    asked = [one for one in found if config.kinds is None or one.kind in config.kinds]
    if found and not asked:
        has = ", ".join(sorted({one.kind for one in found}))
        raise StageError(
            f"{path}: no problem is of kind {' or '.join(config.kinds or [])}; it has {has}. "
            "Change the key kinds."
        )
    left_out = {"other_kind": len(found) - len(asked), "repeated_problem": repeated}
    return asked, {reason: count * config.n for reason, count in left_out.items() if count}


def read_problems(path: Path) -> tuple[list[Problem], int]:
    """Read the problems to sample; of rows with equal problem_ids, only the first is used.

    Returns:
        The problems, sorted by problem_id, and the number of rows that repeat a problem.

    Raises:
        StageError: The file is missing, or has no column problem_id or problem.
    """
    from pcl_reasoner.inference.dialogue import Problem

    table = read_parquet(path, _problem_columns(path))
    found: dict[str, Problem] = {}
    for row in table.to_pylist():
        length, kind = row.get(_LENGTH_COLUMN), row.get("kind") or "math"
        problem = Problem(row["problem_id"], row["problem"], length, kind)
        found.setdefault(problem.id, problem)
    return [found[name] for name in sorted(found)], len(table) - len(found)


def _problem_columns(path: Path) -> list[str]:
    """Return the columns that sampling reads, with those of _OPTIONAL_COLUMNS that are there."""
    if not path.is_file():
        raise StageError(f"{path}: does not exist. The role problems needs a stage that writes it.")
    names = open_parquet(path).schema_arrow.names
    absent = [name for name in ("problem_id", "problem") if name not in names]
    if absent:
        raise StageError(f"{path}: no column {', '.join(absent)}; it has {', '.join(names)}.")
    return ["problem_id", "problem", *(name for name in _OPTIONAL_COLUMNS if name in names)]


def _write_responses(folder: Path, records: AnswerLog) -> None:
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
