"""Makes one round: asks its problems, grades the responses, and publishes the rows.

rounds/00017/queries.json              the problems, written first
rounds/00017/responses.partial.jsonl   responses as they arrive (also tests and scores)
rounds/00017/responses.parquet         all of them with verdicts, rewards and advantages
rounds/00017/figures.json              figures of the round, and its visits
rounds/00017/rows/, round.json         see round_files.py; round.json makes the round complete
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pcl_reasoner.core.artifact import atomic_file, write_atomically
from pcl_reasoner.core.json_lines import own_json
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.rewards import checked_reward
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.inference.dialogue import Prompt
from pcl_reasoner.inference.response_log import ResponseLog
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.rounds.batch import (
    Figures,
    Graded,
    compare,
    exchanged,
    response_rows,
    segments_of,
    trained_of,
    visit_of,
)
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import ROUND, ROWS, Published, publish, round_folder
from pcl_reasoner.rounds.grading import Graders, Grading
from pcl_reasoner.rounds.pool import Pool, queries_of
from pcl_reasoner.verifiers.answers import Verdict
from pcl_reasoner.verifiers.logs import LOGS

if TYPE_CHECKING:
    import pyarrow as pa

QUERIES, RESPONSES, FIGURES = "queries.json", "responses.parquet", "figures.json"
RESPONSE_LOG = "responses.partial.jsonl"


class Sampler(Protocol):
    """Draws responses with weights that can be replaced: LocalDrawer or ServerSampler."""

    def load(self, folder: Path) -> None:
        """Draw with the weights of this Hugging Face folder from now on."""

    def draw(
        self,
        prompts: list[Prompt],
        settings: SamplingConfig,
        records: ResponseLog,
        log_probs: bool,
    ) -> None:
        """Draw every response that is missing."""


class WatchedLog(ResponseLog):
    """A log of responses that tells of each response, new or left by a killed run.

    Args:
        path: The JSONL file.
        arrived: Called with each response.
    """

    def __init__(self, path: Path, arrived: Callable[[Record], None]) -> None:
        self.arrived = arrived
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Add a response to the statistics, and tell of it."""
        super().note(answer)
        self.arrived(answer)


class Answers:
    """Responses to some problems, with their verdicts; a context manager that closes the logs.

    Args:
        sampler: Draws the responses.
        graders: What grades them.
        pool: The problems.
        names: Those that are asked.
        folder: Folder of the logs.
        settings: The sampling fields, with this set's seed and n.
        log_probs: Whether the tokens' log-probs are needed.
    """

    def __init__(
        self,
        sampler: Sampler,
        graders: Graders,
        pool: Pool,
        names: Sequence[str],
        folder: Path,
        settings: SamplingConfig,
        log_probs: bool,
    ) -> None:
        self.pool = pool
        grading = Grading(graders, pool.problems, folder)
        self.log = WatchedLog(folder / RESPONSE_LOG, grading.begin)
        try:
            prompts = [pool.prompts[name] for name in names]
            if len(self.log) < len(names) * settings.n:
                sampler.draw(prompts, settings, self.log, log_probs)
            self.verdicts: Mapping[Key, Verdict] = grading.finish(self.log)
        finally:
            self.log.close()
            grading.close()

    def groups(self, rewards: Mapping[Key, float] | None = None) -> Iterator[list[Graded]]:
        """Yield the responses to each problem, one problem after the other.

        Args:
            rewards: The rewards in training; None: those of the verdicts.
        """
        keys = self.log.keys()
        records = self.log.read(keys)
        for name, of_name in groupby(keys, key=lambda key: key[0]):
            kind = self.pool.problems.question(name).kind
            group = []
            for key in of_name:
                verdict = self.verdicts[key]
                reward = verdict.reward if rewards is None else rewards.get(key, 0.0)
                group.append(Graded(key, kind, next(records), verdict, reward))
            yield group


def make_round(
    number: int,
    rounds: Path,
    config: RlConfig,
    pool: Pool,
    sampler: Sampler,
    graders: Graders,
    weights: str,
    pad_token_id: int,
) -> Figures:
    """Make a round with the sampler's present weights, and publish it.

    Responses of other weights, which an earlier run may have left, are not used.

    Args:
        number: The round.
        rounds: The folder of all rounds.
        config: The stage's settings.
        pool: The problems to train on.
        sampler: Draws the responses.
        graders: What grades them.
        weights: Hash of the sampler's weights.
        pad_token_id: Token that fills the end of a row.
    """
    folder = round_folder(rounds, number)
    folder.mkdir(exist_ok=True)
    names = _queries(folder, pool, config, number, weights)
    settings = settings_of(config, config.seed + (number + 1) * config.responses, config.n)
    answers = Answers(sampler, graders, pool, names, folder, settings, log_probs=True)
    rewards = None
    if config.shuffle_rewards:
        rewards = exchanged(_rewards(answers, number), config.seed, number)
    figures, segments = _write_responses(folder, answers.groups(rewards), pool, config, number)
    rows = _write_rows(folder / ROWS, segments, config, number, pad_token_id)
    micro_steps = max(1, -(-rows // config.rows))
    publish(rounds, Published(number, micro_steps, figures.segments, rows))
    _delete_logs(folder)
    return figures


def settings_of(config: RlConfig, seed: int, n: int) -> SamplingConfig:
    """Return the sampling fields with another seed and number of responses."""
    fields = {name: getattr(config, name) for name in SamplingConfig.model_fields}
    return SamplingConfig.model_validate(fields | {"seed": seed, "n": n})


def is_published(rounds: Path, number: int) -> bool:
    """Return whether a round is complete; delete what a killed run left after it."""
    folder = round_folder(rounds, number)
    if not (folder / ROUND).is_file():
        return False
    _delete_logs(folder)
    return True


def _queries(folder: Path, pool: Pool, config: RlConfig, number: int, weights: str) -> list[str]:
    """Write which problems are asked with which weights; return the problems."""
    names = queries_of(pool.names, config, number)
    text = json.dumps({"round": number, "weights": weights, "problems": names}) + "\n"
    file = folder / QUERIES
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        _delete_logs(folder)
        write_atomically(file, text)
    return names


def _rewards(answers: Answers, number: int) -> dict[Key, float]:
    """Return the reward of each answered response."""
    return {
        one.key: checked_reward(one.earned, f"round {number}, {one.key}")
        for group in answers.groups()
        for one in group
        if one.answered
    }


def _write_responses(
    folder: Path, groups: Iterator[list[Graded]], pool: Pool, config: RlConfig, number: int
) -> tuple[Figures, list[pa.Table]]:
    """Write responses.parquet and figures.json; return figures and the segments to train on."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.core import schemas

    schema = pa.unify_schemas([schemas.RESPONSES, schemas.ROUND_RESPONSES])
    figures, segments, visits = Figures(), list[pa.Table](), []
    with (
        atomic_file(folder / RESPONSES) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for group in groups:
            for one in group:
                where = f"round {number}, response {one.key[1]} of problem {one.key[0]}"
                checked_reward(one.reward, where)
            compared = compare(group, config)
            trained = trained_of(group, config.skip_without_advantage) if compared else []
            figures.add(group, compared, trained)
            visits.append(visit_of(group, number))
            rows = response_rows(group, number)
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            if trained:
                segments.append(segments_of(trained, pool.prompts[group[0].key[0]]))
    value = {**asdict(figures), "mean_reward": figures.mean_reward, "visits": visits}
    write_atomically(folder / FIGURES, json.dumps(value) + "\n")
    return figures, segments


def _write_rows(
    folder: Path, segments: Sequence[pa.Table], config: RlConfig, number: int, pad_token_id: int
) -> int:
    """Pack the segments into rows, and return the number of rows."""
    import pyarrow as pa

    from pcl_reasoner.pack.arrow_folder import write_arrow_folder
    from pcl_reasoner.pack.rows import plan_packing

    shutil.rmtree(folder, ignore_errors=True)
    if not segments:
        return 0
    folder.mkdir()
    table = pa.concat_tables(segments)
    sizes = (config.row_tokens, config.max_segments, number)
    packing = plan_packing(table, *sizes, pad_token_id=pad_token_id)
    write_arrow_folder(folder, packing.schema, packing.batches())
    return len(packing.plan.rows)


def _delete_logs(folder: Path) -> None:
    for name in (RESPONSE_LOG, *LOGS):
        with suppress(FileNotFoundError):
            (folder / name).unlink()


def read_figures(rounds: Path, number: int) -> dict[str, Any]:
    """Return the content of a round's figures.json."""
    found: dict[str, Any] = own_json(round_folder(rounds, number) / FIGURES)
    return found
