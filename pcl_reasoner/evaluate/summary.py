"""Computes a benchmark's figures from its graded samples: one entry of scores.json.

    {"problems": 30, "n": 32, "avg_at_n": 0.90, "standard_error": 0.04, "interval": [0.82, 0.98],
     "sampling_error": 0.004, "sampling_interval": [0.89, 0.91], "pass_at": {"1": 0.90, …},
     "maj_at_n": 0.933, "by_budget": {"16384": 0.41, …}, "mean_length": 30560.0, …}

``interval`` is over problems: the 95 % interval if the problems were drawn again from the same
distribution. ``sampling_interval`` is over samples: the 95 % interval for another run on the same
problems. Failed responses count as incorrect.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.evaluate import scores
from pcl_reasoner.inference.response_log import FAILED
from pcl_reasoner.verifiers.answers import (
    Verdict,
    after_thinking,
    grade_by_rule,
    plain_integer,
)

BUDGETS = (16_384, 32_768, 65_536, 131_072)
"""Limits on the response length, in tokens, from V1's table of accuracy by budget."""
CORRECT = 0.5
"""Smallest score in a file that says that a response is correct."""
END_CHARACTERS = 1500
"""Characters kept of a response's end, for a person to read."""


@dataclass(frozen=True)
class Sample:
    """A graded response.

    Args:
        outcome: One of verifiers.answers.OUTCOMES.
        answer: The content of the last box, integers in canonical form; None if there is none.
        recorded: The response's score in the file; None if the file has none.
        tokens: The response's length; None if it is not known.
        end: The response's last END_CHARACTERS characters.
        finish_reason: As in the file; "" if the file has none.
    """

    outcome: str
    answer: str | None
    recorded: float | None
    tokens: int | None
    end: str
    finish_reason: str

    @property
    def correct(self) -> bool:
        """True only if the outcome is ``correct``."""
        return self.outcome == "correct"

    @property
    def disputed(self) -> bool:
        """True if the score in the file differs from our verdict."""
        return self.recorded is not None and (self.recorded >= CORRECT) != self.correct


def grade_sample(
    text: str,
    truth: str,
    finish_reason: str,
    tokens: int | None = None,
    recorded: float | None = None,
) -> Sample:
    """Grade a response by rule. A failed response (without text) counts as incorrect.

    Args:
        text: The response.
        truth: The ground truth.
        finish_reason: As in the file; "" if the file has none.
        tokens: The response's length; None if it is not known.
        recorded: The response's score in the file; None if the file has none.
    """
    verdict = grade_by_rule(text, truth, finish_reason or ("stop" if text else "error"))
    return sample_of(verdict, text, finish_reason, tokens, recorded)


def sample_of(
    verdict: Verdict,
    text: str,
    finish_reason: str,
    tokens: int | None = None,
    recorded: float | None = None,
) -> Sample:
    """Return the sample of a verdict; the other arguments are those of grade_sample."""
    # Votes count answers, not spellings: 008 and 8 are the same answer.
    answer = verdict.answer and (plain_integer(verdict.answer) or verdict.answer.strip())
    return Sample(verdict.outcome, answer, recorded, tokens, text[-END_CHARACTERS:], finish_reason)


def recorded_sample(text: str, finish_reason: str, tokens: int | None, recorded: float) -> Sample:
    """Return the sample of a response that was graded before, e.g. by tests.

    Its recorded score says whether it is correct. The arguments are those of grade_sample.
    """
    outcome = "incorrect" if after_thinking(text) is not None else "unfinished"
    if finish_reason in FAILED:
        outcome = finish_reason
    if recorded >= CORRECT:
        outcome = "correct"
    return Sample(outcome, None, recorded, tokens, text[-END_CHARACTERS:], finish_reason)


def summary(samples: Sequence[Sequence[Sample]]) -> dict[str, Any]:
    """Return a benchmark's entry of scores.json; all scores are fractions.

    Args:
        samples: For each problem, its graded samples. Either all have a length or none has.
    """
    correct = [[sample.correct for sample in group] for group in samples]
    answers = [[sample.answer for sample in group] for group in samples]
    lengths = [[sample.tokens or 0 for sample in group] for group in samples]
    every = [sample for group in samples for sample in group]
    outcomes = Counter(sample.outcome for sample in every)
    reasons = Counter(sample.finish_reason or "not said" for sample in every)
    tokens = [sample.tokens for sample in every if sample.tokens is not None]
    # All budgets up to the first one that no response exceeds.
    budgets = BUDGETS[: bisect_left(BUDGETS, max(tokens)) + 1] if tokens else ()
    n = min(map(len, correct))
    powers_of_two = [2**power for power in range(n.bit_length())]
    score, error = scores.average(correct), scores.standard_error(correct)
    sampling = scores.sampling_error(correct)
    return {
        "problems": len(correct),
        "n": n,
        "avg_at_n": score,
        "standard_error": error,
        "interval": scores.interval_95(score, error),
        "sampling_error": sampling,
        "sampling_interval": scores.interval_95(score, sampling),
        "pass_at_n": scores.pass_at(correct, n),
        "pass_at": {str(k): scores.pass_at(correct, k) for k in powers_of_two},
        "maj_at_n": scores.majority(answers, correct),
        "mean_length": sum(tokens) / len(tokens) if tokens else None,
        "by_budget": {str(one): scores.within_budget(correct, lengths, one) for one in budgets},
        "finish_reasons": dict(sorted(reasons.items())),
        "outcomes": dict(sorted(outcomes.items())),
        "unfinished": outcomes["unfinished"] / len(every),
    }
