"""What a score says about a published one: better, worse, consistent, or too few samples to tell.

measured 91.2 ± 0.6 (avg@64 of the 30 questions)   published 90.9 (avg@32)
-> consistent, +0.3 points; differences of 2.1 points and more would show
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pcl_reasoner.evaluate.published import ROUNDING, SCORES, Published
from pcl_reasoner.evaluate.scores import NORMAL_95

Word = Literal["better", "worse", "consistent", "too few to tell"]

RESOLUTION = 2.5
"""Points. A score that could not show such a difference tells nothing by showing none."""
PUBLISHED_SAMPLES = 32
"""Published scores are avg@32."""


@dataclass(frozen=True)
class Verdict:
    """A measured score beside a published one.

    Args:
        model: Whose score was published.
        published: In per cent.
        difference: Measured minus published, in points.
        half_width: Of the difference's 95 % interval, in points.
        word: What that says.
        samples: A question, that would tell; None: no number would, or enough are there.
    """

    model: str
    published: float
    difference: float
    half_width: float
    word: Word
    samples: int | None


def verdicts(
    benchmark: str, score: float, error: float | None, n: int, models: Sequence[Published] = SCORES
) -> list[Verdict]:
    """A measured score against every published one of a benchmark.

    Args:
        benchmark: aime24 or aime25; others have none.
        score: avg@n, a fraction.
        error: Its standard error over samples, a fraction; None: not known, and no verdict.
        n: Samples a question.
        models: Published scores.
    """
    if benchmark not in ("aime24", "aime25") or error is None:
        return []
    return [verdict(one.model, getattr(one, benchmark), score, error, n) for one in models]


def verdict(model: str, published: float, score: float, error: float, n: int) -> Verdict:
    """A measured score against one published score on the same questions.

    The published score was drawn too: its error is not printed, and is taken to be that of a
    model with the same spread and 32 samples a question.

    Args:
        model: Whose score was published.
        published: In per cent.
        score: avg@n, a fraction.
        error: Its standard error over samples, a fraction.
        n: Samples a question.
    """
    a_sample = (100 * error) ** 2 * n
    half = _half_width(a_sample, n)
    difference = 100 * score - published
    word = word_of(difference, half)
    needed = _samples_that_tell(a_sample) if word == "too few to tell" else None
    return Verdict(model, published, difference, half, word, needed)


def word_of(difference: float, half_width: float) -> Word:
    """What a difference says.

    Args:
        difference: In points.
        half_width: Of its 95 % interval, in points.
    """
    if abs(difference) > half_width + 1e-9:
        return "better" if difference > 0 else "worse"
    return "too few to tell" if half_width > RESOLUTION else "consistent"


def _half_width(a_sample: float, n: int) -> float:
    """Points: 1.96 errors of the difference, and the rounding of what was printed."""
    return NORMAL_95 * math.sqrt(a_sample / n + a_sample / PUBLISHED_SAMPLES) + ROUNDING


def _samples_that_tell(a_sample: float) -> int | None:
    """The least n whose half width is RESOLUTION; None: the published error alone is larger."""
    left = ((RESOLUTION - ROUNDING) / NORMAL_95) ** 2 - a_sample / PUBLISHED_SAMPLES
    return math.ceil(a_sample / left) if left > 0 else None


def separable(problems: int, error: float | None) -> str:
    """How far apart two models must be to be told apart on other problems of this kind.

    Args:
        problems: How many there are.
        error: Standard error over problems, a fraction.
    """
    if error is None:
        return ""
    points = NORMAL_95 * 100 * error * math.sqrt(2)
    return (
        f"{problems} problems seldom separate two models: on other problems of this kind, "
        f"differences below {points:.0f} points are within the chance of which problems were asked."
    )
