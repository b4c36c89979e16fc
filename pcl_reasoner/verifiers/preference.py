"""Scores responses with a reward model, and turns scores into rewards.

    problem "Greet Ben.", response "<think>short</think>Hello Ben, welcome!"
    -> the model reads the problem and "Hello Ben, welcome!" -> score 1.84
    -> reward sigmoid((1.84 − shift) / scale) = 0.86 with shift 0 and scale 1

preference_scorers.py has the two ways to score: by servers, and by a model on this CPU.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import fingerprint, hash_file
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.instructions.parsing import without_answer_tags
from pcl_reasoner.sample.generate import log_beside
from pcl_reasoner.verifiers.answers import after_thinking
from pcl_reasoner.verifiers.logs import SCORE_LOG
from pcl_reasoner.verifiers.preference_config import RewardModelConfig
from pcl_reasoner.verifiers.preference_scorers import Pair, ScoreLog, Tally, opened
from pcl_reasoner.weights.stream import weight_files


def answer_text(response: str, with_thinking: bool) -> str | None:
    """Return the text that the reward model reads of a response.

    Args:
        response: The complete response.
        with_thinking: True for the complete response; False for what follows the last
            ``</think>``, without the tags ``<answer>`` around it and without blanks at its ends.

    Returns:
        The text; None if it is blank or the think part was never closed.
    """
    if with_thinking:
        return response if response.strip() else None
    answered = after_thinking(response)
    return without_answer_tags(answered or "") or None


def reward_of(score: float, config: RewardModelConfig) -> float:
    """Return the reward of a score: sigmoid((score - shift) / scale), in [0, 1]."""
    x = (score - config.shift) / config.scale
    # exp of a negative number only, so that no score overflows.
    small = math.exp(-abs(x))
    return 1.0 / (1.0 + small) if x >= 0 else small / (1.0 + small)


@dataclass(frozen=True)
class Scores:
    """The scores of a stage's responses.

    Args:
        scores: Raw score of each response.
        missing: Reason for each response that has no score.
        described: The reward model's settings, hash and servers.
        figures: As in `Tally.figures`.
    """

    scores: dict[Key, float]
    missing: dict[Key, str]
    described: dict[str, Any]
    figures: dict[str, Any]


def score_all(
    config: RewardModelConfig,
    pairs: Iterable[Pair],
    total: int,
    output: Path,
    context: StageContext,
    model: Path | None,
) -> Scores:
    """Score every pair that is not in the log yet; return the scores of all.

    Nothing is started or loaded if all scores are in the log.

    Args:
        config: The reward model's settings.
        pairs: The responses, in any order.
        total: Number of pairs, for progress and for the limit ``max_missing``.
        output: The stage's folder; it has the log of scores if an earlier run was killed.
        context: As in `opened`. The servers' output is logged to ``logs`` beside the stage's
            folder.
        model: As in `opened`.

    Raises:
        StageError: No server is configured or answers, a server serves another model, a score is
            not finite, or too many responses have no score.
    """
    tally = Tally(ScoreLog(output / SCORE_LOG), total, config.max_missing, context.progress)
    log = tally.log
    try:
        unscored = (pair for pair in pairs if pair.key not in log)
        first = next(unscored, None)
        if first is not None:
            with opened(config, context, model, log_beside(output, "reward_model")) as scorer:
                scorer.score(itertools.chain([first], unscored), tally)
    finally:
        log.close()
    described = {**_describe(config, model), "servers": log.servers}
    return Scores(log.scores, tally.missing, described, tally.figures())


def _describe(config: RewardModelConfig, model: Path | None) -> dict[str, Any]:
    """Return the settings that change scores or rewards; with a model folder, also its hash."""
    found = config.model_dump(mode="json", exclude={"concurrency"})
    if model is not None:
        files = [model / "config.json", *weight_files(model)]
        hashes = {path.name: hash_file(path) for path in files}
        found["model_fingerprint"] = fingerprint(hashes)
    return found
