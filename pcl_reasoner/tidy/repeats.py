"""Finds phrases that a response repeats, in its tokens.

    min_tokens 3   tokens [1, 7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 2]
    lag 3          t[i] == t[i + 3] for i = 1 … 8, a run of 8
    -> a phrase of 3 tokens stands 8 // 3 + 1 = 3 times in a row, from index 1: Repeat(3, 3, 1)

For a lag k, let L be the longest run of consecutive i with t[i] == t[i + k]. Then some phrase of k
tokens stands L // k + 1 times in a row. A phrase of p < min_tokens tokens is found at the lag
p · ceil(min_tokens / p), as a phrase that is several copies of it.

For a text without a repeated n-gram, its n-grams are hashed and the hashes are sorted, and that is
all. For others, n · ln n hashes of blocks give every lag at which a phrase can stand three times in
a row, and how often at most; then only lags that can be better than the best one so far are looked
at, in n steps each. Hashes only choose the lags; the tokens themselves decide.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]
"""[n] token ids of one response."""
Hashes = npt.NDArray[np.uint64]

LEAST_TIMES = 3
"""Fewer times in a row are not searched for."""
_BASE = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)


@dataclass(frozen=True)
class Repeat:
    """A phrase that stands several times in a row.

    Args:
        times: How often it stands in a row.
        tokens: Its length.
        start: Index of its first token.
    """

    times: int
    tokens: int
    start: int


def longest_repeat(tokens: Tokens, min_tokens: int) -> Repeat | None:
    """Return the phrase that stands the most times in a row.

    Args:
        tokens: [n] token ids.
        min_tokens: Shortest length of a phrase.

    Returns:
        The phrase, of those with equal times the shortest; None if no phrase stands LEAST_TIMES
        times in a row.

    Source: the definition above is ours. AM-Thinking-v1 (arXiv 2505.08311) removes responses with
    phrases that are repeated consecutively, without a published definition.
    """
    if not _has_equal(gram_hashes(tokens, min_tokens)):
        return None
    best = None
    for lag, most_times in _candidates(tokens, min_tokens):
        if best is not None and most_times <= best.times:
            continue
        found = _repeat_at(tokens, lag)
        if found.times > (best.times if best else LEAST_TIMES - 1):
            best = found
    return best


def most_frequent(tokens: Tokens, size: int) -> int:
    """Return the number of occurrences of the most frequent n-gram; occurrences may overlap.

    Args:
        tokens: [n] token ids.
        size: Tokens per n-gram.
    """
    grams = gram_hashes(tokens, size)
    values, counts = np.unique(grams, return_counts=True)
    best = 0
    for place in np.argsort(-counts, kind="stable"):
        if counts[place] <= best:
            break
        best = max(best, _most_equal(tokens, np.flatnonzero(grams == values[place]), size))
    return best


def gram_hashes(tokens: Tokens, size: int) -> Hashes:
    """Hash every n-gram of a text.

    Args:
        tokens: [n] token ids.
        size: Tokens per n-gram.

    Returns:
        [n − size + 1] 64-bit hashes; equal n-grams have equal hashes. Empty for a shorter text.
    """
    count = len(tokens) - size + 1
    if count <= 0:
        return np.empty(0, np.uint64)
    mixed = _mixed(tokens)
    hashes = np.zeros(count, np.uint64)
    for place in range(size):
        hashes *= _BASE
        hashes += mixed[place : place + count]
    return hashes


def _mixed(tokens: Tokens) -> Hashes:
    mixed = (tokens.astype(np.uint64) + np.uint64(1)) * _MIX
    return mixed ^ (mixed >> _SHIFT)


def _has_equal(hashes: Hashes) -> bool:
    return len(np.unique(hashes)) < len(hashes)


def prefix_hashes(tokens: Tokens) -> tuple[Hashes, Hashes]:
    """Hash every beginning of a text, so that the hash of each block is a difference of two.

    Args:
        tokens: [n] token ids, t.

    Returns:
        [n + 1] sums of t[i] · B^i over i < k, for k = 0 … n; and [n + 1] powers B^k, both modulo
        2^64.
    """
    powers = np.cumprod(np.full(len(tokens), _BASE))
    powers = np.concatenate([np.ones(1, np.uint64), powers])
    sums = np.cumsum(_mixed(tokens) * powers[:-1])
    return np.concatenate([np.zeros(1, np.uint64), sums]), powers


def _candidates(tokens: Tokens, min_tokens: int) -> list[tuple[int, int]]:
    """Return, in ascending order, all lags at which a phrase can stand LEAST_TIMES times in a row.

    If a phrase of k tokens stands m times in a row, t[i] == t[i + k] for (m − 1) · k consecutive i.
    In them are at least m − 2 consecutive multiples a of k, the anchors, whose k tokens from a
    equal the next k tokens. There are n / k anchors per lag: n · ln n comparisons in all.

    Args:
        tokens: [n] token ids.
        min_tokens: Smallest lag.

    Returns:
        Pairs of a lag and the largest number of times that a phrase of its length can stand in a
        row.
    """
    sums, powers = prefix_hashes(tokens)
    lags = np.arange(min_tokens, len(tokens) // LEAST_TIMES + 1)
    anchors = len(tokens) // lags - 1  # 0, k, 2k … up to n − 2k
    lag = np.repeat(lags, anchors)
    number = np.arange(len(lag)) - np.repeat(np.cumsum(anchors) - anchors, anchors)
    first = number * lag
    block = (sums[first + lag] - sums[first]) * powers[lag]
    equal = block == sums[first + 2 * lag] - sums[first + lag]
    lag, number = lag[equal], number[equal]
    # A group is a lag with consecutive anchors.
    begins = np.flatnonzero(np.diff(lag, prepend=0) | (np.diff(number, prepend=0) != 1))
    lengths = np.diff(begins, append=len(lag))
    most: dict[int, int] = {}
    for one, length in zip(lag[begins].tolist(), lengths.tolist(), strict=True):
        most[one] = max(most.get(one, 0), length + 2)
    return list(most.items())


def _repeat_at(tokens: Tokens, lag: int) -> Repeat:
    """Return the phrase of ``lag`` tokens that stands the most times in a row."""
    different = np.flatnonzero(tokens[:-lag] != tokens[lag:])
    edges = np.concatenate([[-1], different, [len(tokens) - lag]])
    runs = np.diff(edges) - 1
    longest = int(runs.argmax())
    return Repeat(int(runs[longest]) // lag + 1, lag, int(edges[longest]) + 1)


def _most_equal(tokens: Tokens, starts: npt.NDArray[np.int64], size: int) -> int:
    """Return how many of the n-grams that start there are equal; their hashes are equal."""
    grams = tokens[starts[:, None] + np.arange(size)]
    if (grams == grams[0]).all():
        return len(grams)
    _, counts = np.unique(grams, axis=0, return_counts=True)
    return int(counts.max())
