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
    """Return avg@n: the mean over problems of the mean over each problem's samples.

    The mean over all samples would give a problem with missing samples less weight.

    Args:
        correct: For each problem, whether each of its samples is correct, or each sample's score;
            every problem has a sample.
    """
    return sum(_means(correct)) / len(correct)


def standard_error(correct: Sequence[Sequence[bool]]) -> float | None:
    """Return avg@n's standard error over problems: std(problem means, ddof=1) / sqrt(problems).

    The problems count as random, because samples of one problem are not independent. None for a
    single problem, which has no standard deviation.

    Args:
        correct: As in ``average``.
    """
    return _error_of_mean(_means(correct))


def sampling_error(correct: Sequence[Sequence[bool]]) -> float | None:
    """Return avg@n's standard error over samples, with the problems fixed.

    It measures how much another run on the same problems would differ, as
    √(Σ p(1 − p) / (n − 1)) / P: a sum over the P problems, each with n samples and a share p of
    correct ones. None if a problem has only one sample.

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
    """Return avg@n with every response that is longer than a budget counted as incorrect.

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
    """Return the difference of avg@n, second − first, on the same problems, with its errors.

    Args:
        first: As in ``average``.
        second: The same problems in the same order, answered by another model.

    Returns:
        (difference, standard error over problems, standard error over samples). The error over
        problems treats each problem's samples as one cluster. An error is None if it is not known.
    """
    differences = [b - a for a, b in zip(_means(first), _means(second), strict=True)]
    errors = [error for error in map(sampling_error, (first, second)) if error is not None]
    sampling = math.hypot(*errors) if len(errors) == 2 else None
    return sum(differences) / len(differences), _error_of_mean(differences), sampling


def interval_95(score: float, error: float | None) -> list[float] | None:
    """Return the 95 % interval: score ± 1.96 · error, cut to [0, 1]; None if ``error`` is None."""
    if error is None:
        return None
    return [max(0.0, score - NORMAL_95 * error), min(1.0, score + NORMAL_95 * error)]


def pass_at(correct: Sequence[Sequence[bool]], k: int) -> float:
    """Return pass@k: the mean over problems of 1 − C(n − c, k) / C(n, k), with c of n correct.

    This is the chance that k samples drawn without replacement contain a correct one. It has no
    bias, unlike 1 − (1 − c/n)^k.

    Args:
        correct: As in ``average``; every problem has at least k samples.
        k: Number of samples drawn.

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
    """Return maj@n: the share of problems whose most frequent answer is correct.

    Samples without an answer do not vote. Among equally frequent answers the first one counts. A
    problem without any answer is incorrect.

    Args:
        answers: For each problem, its samples' answers; equal answers have equal spelling.
        correct: As in ``average``.
    """
    won = 0
    for given, right in zip(answers, correct, strict=True):
        votes = Counter(answer for answer in given if answer is not None)
        # most_common keeps the order of first appearance among equals.
        if votes:
            winner = votes.most_common(1)[0][0]
            won += right[list(given).index(winner)]
    return won / len(correct)


def _error_of_mean(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean of independent values; None for a single value."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def _means(correct: Sequence[Sequence[float]]) -> list[float]:
    return [sum(samples) / len(samples) for samples in correct]
