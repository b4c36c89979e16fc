"""Compares a score with a published one: better, worse, consistent, or too few samples to tell.

measured 91.2 ± 0.6 (avg@64 of the 30 questions)   published 90.9 (avg@32)
-> consistent, +0.3 points; a difference of 2.1 points or more would be visible
"""

import math
from dataclasses import dataclass
from typing import Literal

from pcl_reasoner.evaluate.scores import NORMAL_95

SOURCE = "PCL-Reasoner-V1.5, arXiv 2601.14716, table of results (avg@32, per cent)"
"""Source of the published scores. The paper's abstract has another AIME25 score of V1.5: 85.6."""
ROUNDING = 0.05
"""Published scores have one decimal: the exact score differs by at most this many points."""


@dataclass(frozen=True)
class Published:
    """One model's published scores, in per cent."""

    model: str
    size: Literal["over 100B", "32B"]
    aime24: float
    aime25: float
    source: str = SOURCE


SCORES = (
    Published("DeepSeek-R1", "over 100B", 79.8, 70.0),
    Published("DeepSeek-R1-0528", "over 100B", 91.4, 87.5),
    Published("Qwen3-235B-A22B", "over 100B", 85.7, 81.5),
    Published("OpenAI-o3", "over 100B", 91.6, 88.9),
    Published("Gemini-2.5-Pro-0506", "over 100B", 90.8, 83.0),
    Published("Qwen3-32B", "32B", 81.4, 72.9),
    Published("QwQ-32B", "32B", 79.5, 69.5),
    Published("DeepSeek-R1-Distill-Qwen-32B", "32B", 72.6, 49.6),
    Published("Skywork-OR1-32B", "32B", 82.2, 73.3),
    Published("AM-Thinking-v1", "32B", 85.3, 74.4),
    Published("OpenReasoning-Nemotron-32B", "32B", 89.2, 84.2),
    Published("PCL-Reasoner-V1", "32B", 85.7, 84.2),
    Published("PCL-Reasoner-V1.5", "32B", 90.9, 85.7),
)

Outcome = Literal["better", "worse", "consistent", "too few to tell"]

RESOLUTION = 2.5
"""In points. If the half width of the 95 % interval is larger, samples are too few to tell."""
PUBLISHED_SAMPLES = 32
"""Samples per question of a published score (avg@32)."""


@dataclass(frozen=True)
class Verdict:
    """A measured score compared with a published one.

    Args:
        model: The model whose score was published.
        published: The published score, in per cent.
        difference: Measured minus published, in points.
        half_width: Half width of the difference's 95 % interval, in points.
        word: The verdict, one of Outcome.
        samples: Samples per question that would reduce the half width to RESOLUTION. Only for the
            verdict ``too few to tell``, and only if such a number exists; None otherwise.
    """

    model: str
    published: float
    difference: float
    half_width: float
    word: Outcome
    samples: int | None


def verdicts(benchmark: str, score: float, error: float | None, n: int) -> list[Verdict]:
    """Compare a measured score with every published one of a benchmark.

    Args:
        benchmark: aime24 or aime25; for others, without published scores, the result is empty.
        score: avg@n, a fraction.
        error: The score's standard error over samples, a fraction; None gives no verdicts.
        n: Samples per question.
    """
    if benchmark not in ("aime24", "aime25") or error is None:
        return []
    return [verdict(one.model, getattr(one, benchmark), score, error, n) for one in SCORES]


def verdict(model: str, published: float, score: float, error: float, n: int) -> Verdict:
    """Compare a measured score with one published score on the same questions.

    The published score is random, too. Its standard error is not published. It is computed from the
    measured score's variance per sample, for 32 samples per question.

    Args:
        model: The model whose score was published.
        published: The published score, in per cent.
        score: The measured avg@n, a fraction.
        error: The measured score's standard error over samples, a fraction.
        n: Samples per question.
    """
    variance_per_sample = (100 * error) ** 2 * n
    published_variance = variance_per_sample / PUBLISHED_SAMPLES
    # 1.96 standard errors of the difference, plus the published rounding, in points.
    half = NORMAL_95 * math.sqrt(variance_per_sample / n + published_variance) + ROUNDING
    difference = 100 * score - published
    outcome = outcome_of(difference, half)
    # The variance of our score with which the half width is RESOLUTION.
    allowed = ((RESOLUTION - ROUNDING) / NORMAL_95) ** 2 - published_variance
    needed = None
    if outcome == "too few to tell" and allowed > 0:
        needed = math.ceil(variance_per_sample / allowed)
    return Verdict(model, published, difference, half, outcome, needed)


def outcome_of(difference: float, half_width: float) -> Outcome:
    """Return the verdict on the difference from a published or expected score.

    It is ``better`` or ``worse`` if the 95 % interval excludes 0. Otherwise it is ``consistent``,
    or ``too few to tell`` if the half width is above RESOLUTION.

    Args:
        difference: Measured minus published (or expected) score, in points.
        half_width: Half width of the difference's 95 % interval, in points.
    """
    if abs(difference) > half_width + 1e-9:
        return "better" if difference > 0 else "worse"
    return "too few to tell" if half_width > RESOLUTION else "consistent"


def separable(problems: int, error: float | None) -> str:
    """Return a sentence with the score difference that the choice of problems alone can cause.

    The difference is 1.96 · √2 · ``error``, for two scores with equal standard errors.

    Args:
        problems: Number of problems.
        error: A score's standard error over problems, a fraction; None gives an empty text.
    """
    if error is None:
        return ""
    points = NORMAL_95 * 100 * error * math.sqrt(2)
    return (
        f"{problems} problems seldom separate two models: on other problems, "
        f"differences below {points:.0f} points can come from the choice of problems alone."
    )
