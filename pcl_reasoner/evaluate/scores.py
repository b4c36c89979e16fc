"""Scores of a benchmark from its graded samples: avg@n, its interval, pass@k, maj@n.

    problem 1: [correct, correct, incorrect, correct]   mean 0.75
    problem 2: [incorrect, incorrect, incorrect, incorrect]   mean 0
    -> avg@4 0.375, standard error 0.375, pass@4 0.5

All scores are fractions in [0, 1]; per cent is for display only.
"""

import math
from collections import Counter
from collections.abc import Sequence

NORMAL_95 = 1.96
"""Half width of a 95 % interval in standard errors."""


def average(correct: Sequence[Sequence[float]]) -> float:
    """avg@n: the mean over problems of the mean over a problem's samples.

    Not the mean over all samples: there a problem with missing samples would count less.

    Args:
        correct: For each problem, whether each of its samples is correct, or its score; none
            may be empty.
    """
    return sum(_means(correct)) / len(correct)


def standard_error(correct: Sequence[Sequence[bool]]) -> float | None:
    """Standard error of avg@n over problems: std(problem means, ddof=1) / sqrt(problems).

    Problems are the random draw; samples of one problem depend on each other. None for a single
    problem, because its spread is not known.

    Args:
        correct: As in ``average``.
    """
    return _error_of_mean(_means(correct))


def sampling_error(correct: Sequence[Sequence[bool]]) -> float | None:
    """Standard error of avg@n over samples, with the problems fixed.

    It says how much another run on the same problems would differ. It is the square root of the sum
    over problems of p(1 − p) / (n − 1), divided by the number of problems. None if a problem has
    only one sample.

    Args:
        correct: As in ``average``.
    """
    if any(len(samples) < 2 for samples in correct):
        return None
    spread = [
        mean * (1 - mean) / (len(samples) - 1)
        for mean, samples in zip(_means(correct), correct, strict=True)
    ]
    return math.sqrt(sum(spread)) / len(correct)


def within_budget(
    correct: Sequence[Sequence[bool]], lengths: Sequence[Sequence[int]], budget: int
) -> float:
    """avg@n if responses longer than a budget were cut off, and so were incorrect.

    Args:
        correct: As in ``average``.
        lengths: Lengths of the same samples, in tokens.
        budget: Longest response, in tokens.
    """
    pairs = zip(correct, lengths, strict=True)
    cut = [[a and b <= budget for a, b in zip(*pair, strict=True)] for pair in pairs]
    return average(cut)


def paired_difference(
    first: Sequence[Sequence[bool]], second: Sequence[Sequence[bool]]
) -> tuple[float, float | None, float | None]:
    """Second minus first on the same problems, and its two standard errors.

    Args:
        first: As in ``average``.
        second: The same problems in the same order, answered by another model.

    Returns:
        The difference; its standard error over problems, with each problem's samples as one
        cluster; its standard error over samples. An error is None if it is not known.
    """
    differences = [b - a for a, b in zip(_means(first), _means(second), strict=True)]
    errors = [error for error in map(sampling_error, (first, second)) if error is not None]
    sampling = math.hypot(*errors) if len(errors) == 2 else None
    return sum(differences) / len(differences), _error_of_mean(differences), sampling


def interval_95(score: float, error: float | None) -> list[float] | None:
    """95 % interval: score ± 1.96 standard errors, cut to [0, 1]; None without an error."""
    if error is None:
        return None
    return [max(0.0, score - NORMAL_95 * error), min(1.0, score + NORMAL_95 * error)]


def pass_at(correct: Sequence[Sequence[bool]], k: int) -> float:
    """pass@k: the mean over problems of 1 − C(n − c, k) / C(n, k), for c correct of n samples.

    This is the chance that k samples drawn without replacement contain a correct one. It has no
    bias, unlike 1 − (1 − c/n)^k.

    Args:
        correct: As in ``average``; every problem has at least k samples.
        k: Samples per try.

    Raises:
        ValueError: A problem has fewer than k samples.

    Source: Chen et al. 2021, arXiv 2107.03374, equation 1.
    """
    if any(len(samples) < k for samples in correct):
        raise ValueError(f"pass@{k} needs {k} samples per problem, got {min(map(len, correct))}")
    chances = [
        1 - math.comb(len(samples) - sum(samples), k) / math.comb(len(samples), k)
        for samples in correct
    ]
    return sum(chances) / len(chances)


def majority(answers: Sequence[Sequence[str | None]], correct: Sequence[Sequence[bool]]) -> float:
    """maj@n: the share of problems whose most frequent answer is correct.

    Samples without an answer do not vote. Among equally frequent answers the first one counts. A
    problem without any answer is incorrect.

    Args:
        answers: For each problem, its samples' answers; equal answers have equal spelling.
        correct: As in ``average``.
    """
    won = [_elected(*pair) for pair in zip(answers, correct, strict=True)]
    return sum(won) / len(won)


def _elected(answers: Sequence[str | None], correct: Sequence[bool]) -> bool:
    votes = Counter(answer for answer in answers if answer is not None)
    if not votes:
        return False
    # most_common keeps the order of first appearance among equals.
    winner = votes.most_common(1)[0][0]
    return correct[list(answers).index(winner)]


def _error_of_mean(values: Sequence[float]) -> float | None:
    """Standard error of the mean of independent values; None for a single one."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def _means(correct: Sequence[Sequence[float]]) -> list[float]:
    return [sum(samples) / len(samples) for samples in correct]
