"""Settings of tiny on-policy training, problems of several kinds, and responses that are given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.reading import Problems
from pcl_reasoner.inference.dialogue import Prompt
from pcl_reasoner.inference.response_log import LOG_PROBS, ResponseLog, record
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.rounds.batch import Graded
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.grading import Graders
from pcl_reasoner.rounds.pool import Pool
from pcl_reasoner.verifiers.answers import Verdict
from pcl_reasoner.verifiers.kept_checks import KeptChecks

RIGHT, WRONG = "<think>so</think>\\boxed{8}", "<think>so</think>\\boxed{7}"
LENGTH = 32


def rl_settings(**changes: Any) -> dict[str, Any]:
    """Settings for a tiny model on a CPU: one row of 32 tokens per micro-step."""
    settings: dict[str, Any] = {
        "engine": "local",
        "queries": 2,
        "n": 3,
        "max_rounds": 3,
        "plateau": None,
        "max_new_tokens": 8,
        "max_model_len": LENGTH,
        "row_tokens": LENGTH,
        "rows": 1,
        "micro_batch_size": 1,
        "max_segments": 4,
        "device": "CPU",
        "precision": "float32",
        "compressed_mask": False,
        "learning_rate": 1e-3,
        "seed": 5,
    }
    return settings | changes


def rl_config(**changes: Any) -> RlConfig:
    """Those settings, checked."""
    return RlConfig(**rl_settings(**changes))


@dataclass(frozen=True)
class Row:
    """A problem, as clean.parquet has it."""

    name: str
    text: str = ""
    kind: str = "math"
    truth: str = "8"
    checks: Any = None


def write_clean(folder: Path, rows: Sequence[Row]) -> Path:
    """A folder with clean.parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = [
        {
            "problem_id": one.name,
            "problem": one.text or f"Problem {one.name}.",
            "ground_truth": one.truth,
            "kind": one.kind,
            "checks": json.dumps(one.checks) if one.checks else "",
        }
        for one in rows
    ]
    pq.write_table(pa.Table.from_pylist(columns), folder / "clean.parquet")
    return folder


def pool_of(folder: Path, rows: Sequence[Row], prompts: Mapping[str, list[int]]) -> Pool:
    """A pool whose prompts are the given token ids."""
    problems = Problems(write_clean(folder, rows), KeptChecks(folder))
    texts = {one.name: one.text or f"Problem {one.name}." for one in rows}
    made = {
        name: Prompt(name, [{"role": "user", "content": texts[name]}], prompts[name])
        for name in sorted(texts)
    }
    return Pool(made, problems)


@dataclass(frozen=True)
class Reply:
    """What a sampler draws for a key.

    Args:
        text: The decoded response.
        tokens: Its ids.
        reason: Its finish reason.
        log_probs: Those of the tokens; None: -1 each.
    """

    text: str
    tokens: Sequence[int]
    reason: str = "stop"
    log_probs: Sequence[float] | None = None


class Given:
    """Draws the responses that it is given, one by one, and remembers what it was asked.

    Args:
        replies: Those of the next round.
    """

    def __init__(self, replies: Mapping[Key, Reply]) -> None:
        self.replies = replies
        self.asked: list[Key] = []
        self.settings: list[SamplingConfig] = []

    def load(self, folder: Path) -> None:
        """There are no weights."""

    def draw(
        self,
        prompts: list[Prompt],
        settings: SamplingConfig,
        records: ResponseLog,
        log_probs: bool = False,
    ) -> None:
        """Draw every response that is missing."""
        self.settings.append(settings)
        for key in [(prompt.problem_id, i) for prompt in prompts for i in range(settings.n)]:
            if key in records:
                continue
            self.asked.append(key)
            one = self.replies[key]
            found = record(key, one.text, list(one.tokens), one.reason, key[1], None, "local")
            if log_probs:
                given = one.log_probs
                found[LOG_PROBS] = list([-1.0] * len(one.tokens) if given is None else given)
            records.add([found])


def graders_of(
    config: RlConfig, kinds: set[str], folder: Path, model: Path | None = None
) -> Graders:
    """What grades responses to problems of some kinds; to be opened."""
    folder.mkdir(parents=True, exist_ok=True)
    context = StageContext("rl", folder / "quarantined.jsonl")
    return Graders(config.grade, kinds, model, context, folder / "log")


def graded(
    key: Key,
    reward: float,
    tokens: int = 2,
    reason: str = "stop",
    kind: str = "math",
    outcome: Any = None,
    log_probs: Sequence[float] | None = None,
) -> Graded:
    """A response with its verdict, and its reward in training."""
    ids = list(range(11, 11 + tokens))
    one = record(key, "text", ids, reason, 0, None, "local")
    one[LOG_PROBS] = list(log_probs or [-1.0] * tokens)
    found = outcome or ("correct" if reward == 1.0 else "incorrect")
    return Graded(key, kind, one, Verdict(found, None, reward), reward)
