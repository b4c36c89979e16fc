"""When on-policy training ends: the held-out problems gain no more.

A probe is a line of probe.jsonl: the policy has answered each held-out problem ``n`` times.

    {"round": 5, "n": 8, "kinds": ["math", "code"], "correct": [3, 8], …}

Each problem's accuracy is fitted by a line over the last probes; the mean of the problems' slopes
is the gain, and their spread is its error. Importing this module is cheap, because it is imported
to check a recipe's settings.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageConfig

PLATEAU = "plateau.json"
"""File with the end of a stage ``rl`` and its counts; the last file that is written."""


class Plateau(StageConfig):
    """When the accuracy on the held-out problems counts as constant."""

    window: int = Field(10, ge=2)
    """Probes in the fit. With fewer probes training does not end."""
    min_gain: float = Field(0.01, ge=0, le=1)
    """Training ends when the gain in accuracy from the first to the last probe of the window, plus
    its standard error, is smaller than this; 0.01 is one percentage point."""
    min_rounds: int = Field(20, ge=0)
    """Training does not end at a probe before this round."""


@dataclass(frozen=True)
class Fit:
    """The line through the held-out accuracy of the last probes, and the decision.

    Args:
        rounds: Rounds of the probes in the fit; empty if there is no fit.
        gain: Fitted accuracy in the last of these rounds minus that in the first.
        se: Standard error of ``gain`` over problems; None for a single problem.
        intercept: Fitted accuracy at round 0.
        slope: Gain in accuracy per round.
        stop: Whether training ends.
    """

    rounds: tuple[int, ...] = ()
    gain: float | None = None
    se: float | None = None
    intercept: float | None = None
    slope: float | None = None
    stop: bool = False


@dataclass(frozen=True)
class Accuracy:
    """The mean accuracy of some held-out problems.

    Args:
        problems: Number of problems.
        accuracy: Mean over problems of their share of correct responses.
        se: Standard error of ``accuracy`` over problems; None for a single problem.
    """

    problems: int
    accuracy: float
    se: float | None


def decide(probes: Sequence[Mapping[str, Any]], rules: Plateau) -> Fit:
    """Fit the last ``window`` probes, and decide whether training ends.

    Each problem has a slope by least squares over the probes' rounds. The gain is the mean slope
    times the rounds from the window's first to its last probe; its error is the standard deviation
    of the slopes (ddof 1) over the square root of the number of problems, times the same rounds.
    Training ends if the window is full, the last probe is not before ``min_rounds``, and
    gain + error < ``min_gain``. So a noisy fit, whose error is large, rarely ends it.

    There is no fit with fewer probes than ``window``, or with a NaN in the window. A single problem
    has a fit, but no error: then training never ends here.

    Args:
        probes: The lines of probe.jsonl so far, in the order of their rounds.
        rules: The settings.

    Raises:
        StageError: The probes are not of the same problems, their rounds do not increase, or a
            number of correct responses is not from 0 to ``n``.

    Source: ours; AM-Thinking-v1 (arXiv 2505.08311) ends stage 1 at a plateau that it does not
    define.
    """
    shares = [shares_of(probe) for probe in probes]
    _check_same(probes)
    rounds = tuple(int(probe["round"]) for probe in probes)[-rules.window :]
    per_problem = list(zip(*shares[-rules.window :], strict=True))
    if len(rounds) < rules.window or not all(math.isfinite(sum(one)) for one in per_problem):
        return Fit()
    slopes = [_slope(rounds, one) for one in per_problem]
    slope, error = mean_and_error(slopes)
    accuracy = sum(map(sum, per_problem)) / (len(per_problem) * len(rounds))
    span = rounds[-1] - rounds[0]
    gain, se = slope * span, None if error is None else error * span
    stop = se is not None and rounds[-1] >= rules.min_rounds and gain + se < rules.min_gain
    intercept = accuracy - slope * sum(rounds) / len(rounds)
    return Fit(rounds, gain, se, intercept, slope, stop)


def accuracy_by_kind(probe: Mapping[str, Any]) -> dict[str, Accuracy]:
    """Return kind -> its accuracy in a probe, sorted by kind.

    Args:
        probe: A line of probe.jsonl.

    Raises:
        StageError: As in ``decide``.
    """
    found: dict[str, list[float]] = {}
    for kind, share in zip(probe["kinds"], shares_of(probe), strict=True):
        found.setdefault(kind, []).append(share)
    return {
        kind: Accuracy(len(shares), *mean_and_error(shares))
        for kind, shares in sorted(found.items())
    }


def shares_of(probe: Mapping[str, Any]) -> list[float]:
    """Return the share of correct responses of each held-out problem, in [0, 1] or NaN.

    Args:
        probe: A line of probe.jsonl.

    Raises:
        StageError: There are no problems, a problem has no kind, or a number of correct responses
            is not from 0 to ``n``.
    """
    where = f"probe.jsonl: the probe of round {probe['round']}"
    kinds, correct, n = probe["kinds"], probe["correct"], probe["n"]
    if not correct or len(kinds) != len(correct):
        raise StageError(
            f"{where} has {len(correct)} problems and {len(kinds)} kinds, expected as many of both "
            "and at least one. Give the stage held-out problems, and run it again."
        )
    wrong = [count for count in correct if not (0 <= count <= n or math.isnan(count))]
    if n < 1 or wrong:
        raise StageError(
            f"{where} has the numbers of correct responses {wrong or correct}, expected 0 to n, "
            f"with n {n}. The file was changed: restore it, or run the stage again from its start."
        )
    return [count / n for count in correct]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean of independent values and its standard error; None for a single value.

    Args:
        values: One value per problem; at least one.
    """
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def _slope(rounds: Sequence[int], shares: Sequence[float]) -> float:
    """Return the least-squares slope of a problem's shares, per round."""
    centre = sum(rounds) / len(rounds)
    away = [one - centre for one in rounds]
    total = sum(x * y for x, y in zip(away, shares, strict=True))
    return total / sum(x * x for x in away)


def _check_same(probes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse probes of different problems, or whose rounds do not increase."""
    for before, after in zip(probes, probes[1:], strict=False):
        rounds = f"rounds {before['round']} and {after['round']}"
        if after["round"] <= before["round"]:
            raise StageError(
                f"probe.jsonl: probes of {rounds} follow each other, expected increasing rounds. "
                "Two lines for a round count it twice: delete one of them."
            )
        if list(after["kinds"]) != list(before["kinds"]):
            raise StageError(
                f"probe.jsonl: the probes of {rounds} have {len(before['kinds'])} and "
                f"{len(after['kinds'])} problems, or their kinds differ; expected the same "
                "problems in the same order. Run the stage again from its start."
            )
