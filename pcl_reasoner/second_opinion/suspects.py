"""The questions that the judge is asked about: the pairs above a lower bar, by any rule.

    log-odds -1.5, containment 0.02     above the bar of -2
    log-odds -3.5, cosine 0.71          above the bar of -4 for such a cosine
    log-odds -9.0, containment 0.20     above the bar of 0.15

The judge decides about suspects. Their bars are far below the limits at which the rules decide.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]

LOG_ODDS, CONTAINMENT, COSINE = -2.0, 0.15, 0.5
"""The bars. The cosine is one only where there are no log-odds, or with NEAR_LOG_ODDS."""
NEAR_LOG_ODDS = -4.0
"""The bar of the log-odds for pairs whose cosine reaches COSINE."""
MOST = 10
"""Largest number of suspects per text; more of them are left out, unless a rule flags them."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A question that a text may be; the fields are those of ``contamination.scores.Match``.

    Args:
        question: Index of the question.
        cosine: Cosine of the question and the text's best window; None: not embedded.
        window: Index of that window; None: not embedded.
        containment: Share of the question's n-grams that the text contains.
        log_odds: Log-odds that the text is a rewrite of the question; None: not compared.
        rule: The rules that flag this pair, as ``embedding+ngrams``; None: no rule.
    """

    question: int
    cosine: float | None
    window: int | None
    containment: float
    log_odds: float | None
    rule: str | None


def suspects(
    cosine: Table | None,
    containment: Table,
    log_odds: Table | None,
    flagged: npt.NDArray[np.bool_],
) -> list[int]:
    """Choose the questions to ask about: those that a rule flags first, then the closest.

    Args:
        cosine: Best cosine per question, shape (questions,); None: not embedded.
        containment: Share of each question's n-grams.
        log_odds: Log-odds per question; None: not compared.
        flagged: True where a rule flags the pair.

    Returns:
        Indices of questions, at most MOST unless rules flag more.
    """
    above = flagged | (containment >= CONTAINMENT)
    closeness = containment
    if log_odds is not None:
        above, closeness = above | (log_odds >= LOG_ODDS), log_odds
        if cosine is not None:
            above = above | ((log_odds >= NEAR_LOG_ODDS) & (cosine >= COSINE))
    elif cosine is not None:
        above, closeness = above | (cosine >= COSINE), cosine
    chosen = np.flatnonzero(above).tolist()
    order = sorted(chosen, key=lambda index: (not flagged[index], -closeness[index]))
    return order[: max(MOST, int(flagged.sum()))]
