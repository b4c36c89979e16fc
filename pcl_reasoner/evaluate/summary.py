"""Computes a benchmark's figures from its graded samples: one entry of scores.json.

    {"problems": 30, "n": 32, "avg_at_n": 0.90, "standard_error": 0.04, "interval": [0.82, 0.98],
     "sampling_error": 0.004, "sampling_interval": [0.89, 0.91], "pass_at": {"1": 0.90, …},
     "maj_at_n": 0.933, "by_budget": {"16384": 0.41, …}, "mean_length": 30560.0, …}

``interval`` is over problems: the 95 % range of the score on other problems of this kind.
``sampling_interval`` is over samples: the 95 % range of another run's score on the same problems.
Failures count as incorrect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pcl_reasoner.evaluate import scores

BUDGETS = (16_384, 32_768, 65_536, 131_072)
"""Limits on the response, in tokens, from V1's table of accuracy by budget."""

Grid = Sequence[Sequence[Any]]
"""For each problem, one value per sample."""


def summary(
    correct: Grid, answers: Grid, outcomes: Grid, reasons: Grid, lengths: Grid | None
) -> dict[str, Any]:
    """All figures of a benchmark; scores are fractions.

    Args:
        correct: Whether each sample is correct.
        answers: Each sample's answer, equal answers spelled equally; None: it has none.
        outcomes: Each sample's outcome, one of grade.answers.OUTCOMES.
        reasons: Each sample's finish reason.
        lengths: Each sample's length in tokens; None: not known.
    """
    n = min(map(len, correct))
    kinds = Counter(one for own in outcomes for one in own)
    total = sum(kinds.values())
    score, error = scores.average(correct), scores.standard_error(correct)
    sampling = scores.sampling_error(correct)
    known = [length for own in lengths for length in own] if lengths is not None else []
    return {
        "problems": len(correct),
        "n": n,
        "avg_at_n": score,
        "standard_error": error,
        "interval": scores.interval_95(score, error),
        "sampling_error": sampling,
        "sampling_interval": scores.interval_95(score, sampling),
        "pass_at_n": scores.pass_at(correct, n),
        "pass_at": {str(k): scores.pass_at(correct, k) for k in _powers_of_two(n)},
        "maj_at_n": scores.majority(answers, correct),
        "mean_length": sum(known) / len(known) if known else None,
        "by_budget": _by_budget(correct, lengths, max(known)) if known and lengths else {},
        "finish_reasons": dict(sorted(Counter(one for own in reasons for one in own).items())),
        "outcomes": dict(sorted(kinds.items())),
        "unfinished": kinds["unfinished"] / total,
    }


def _powers_of_two(n: int) -> list[int]:
    return [2**power for power in range(n.bit_length()) if 2**power <= n]


def _by_budget(correct: Grid, lengths: Grid, longest: int) -> dict[str, float]:
    """Accuracy by budget, up to the first budget that no response exceeds."""
    needed = [budget for budget in BUDGETS if budget < longest]
    needed += [budget for budget in BUDGETS if budget >= longest][:1]
    return {str(budget): scores.within_budget(correct, lengths, budget) for budget in needed}
