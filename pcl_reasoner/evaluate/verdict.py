"""Compares a score with a published one: better, worse, consistent, or too few samples to tell.

measured 91.2 ± 0.6 (avg@64 of the 30 questions)   published 90.9 (avg@32)
-> consistent, +0.3 points; a difference of 2.1 points or more would be visible
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pcl_reasoner.evaluate.published import ROUNDING, SCORES, Published
from pcl_reasoner.evaluate.scores import NORMAL_95

Outcome = Literal["better", "worse", "consistent", "too few to tell"]

RESOLUTION = 2.5
"""Points. A score that cannot show a difference of this size has too few samples to tell."""
PUBLISHED_SAMPLES = 32
"""Samples per question of a published score (avg@32)."""


@dataclass(frozen=True)
class Verdict:
    """A measured score compared with a published one.

    Args:
        model: The model whose score was published.
        published: Its score, in per cent.
        difference: Measured minus published, in points.
        half_width: Half width of the difference's 95 % interval, in points.
        word: The verdict; scores.json has it under this name.
        samples: Samples per question that would be enough to tell; None: no number would be
            enough, or there are enough.
    """

    model: str
    published: float
    difference: float
    half_width: float
    word: Outcome
    samples: int | None


def verdicts(
    benchmark: str, score: float, error: float | None, n: int, models: Sequence[Published] = SCORES
) -> list[Verdict]:
    """Compare a measured score with every published one of a benchmark.

    Args:
        benchmark: aime24 or aime25; others have no published scores.
        score: avg@n, a fraction.
        error: Its standard error over samples, a fraction; None: not known, so no verdicts.
        n: Samples per question.
        models: Published scores.
    """
    if benchmark not in ("aime24", "aime25") or error is None:
        return []
    return [verdict(one.model, getattr(one, benchmark), score, error, n) for one in models]


def verdict(model: str, published: float, score: float, error: float, n: int) -> Verdict:
    """Compare a measured score with one published score on the same questions.

    The published score is a random draw too. Its error is not published, and is assumed to be that
    of a model with the same spread and 32 samples per question.

    Args:
        model: The model whose score was published.
        published: Its score, in per cent.
        score: avg@n, a fraction.
        error: Its standard error over samples, a fraction.
        n: Samples per question.
    """
    variance_per_sample = (100 * error) ** 2 * n
    half = _half_width(variance_per_sample, n)
    difference = 100 * score - published
    outcome = outcome_of(difference, half)
    needed = _samples_that_tell(variance_per_sample) if outcome == "too few to tell" else None
    return Verdict(model, published, difference, half, outcome, needed)


def outcome_of(difference: float, half_width: float) -> Outcome:
    """The verdict on a difference.

    Args:
        difference: Measured minus published, in points.
        half_width: Half width of its 95 % interval, in points.
    """
    if abs(difference) > half_width + 1e-9:
        return "better" if difference > 0 else "worse"
    return "too few to tell" if half_width > RESOLUTION else "consistent"


def _half_width(variance_per_sample: float, n: int) -> float:
    """Half width in points: 1.96 standard errors of the difference, plus the published rounding."""
    return (
        NORMAL_95 * math.sqrt(variance_per_sample / n + variance_per_sample / PUBLISHED_SAMPLES)
        + ROUNDING
    )


def _samples_that_tell(variance_per_sample: float) -> int | None:
    """The least n whose half width is within RESOLUTION; None: the published error is too large."""
    allowed = ((RESOLUTION - ROUNDING) / NORMAL_95) ** 2 - variance_per_sample / PUBLISHED_SAMPLES
    return math.ceil(variance_per_sample / allowed) if allowed > 0 else None


def separable(problems: int, error: float | None) -> str:
    """A sentence on how far apart two models must be to differ on other problems of this kind.

    Args:
        problems: Number of problems.
        error: Standard error over problems, a fraction; None: not known, so an empty text.
    """
    if error is None:
        return ""
    points = NORMAL_95 * 100 * error * math.sqrt(2)
    return (
        f"{problems} problems seldom separate two models: on other problems of this kind, "
        f"differences below {points:.0f} points are within the chance of which problems were asked."
    )
