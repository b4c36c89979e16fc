"""Draws the next token of many rows from their logits, after top-k, top-p and other filters.

Every sample has its own random stream, so its tokens do not depend on the other samples in its
batch:

    stream_seed(0, "5c18d5f0a1b2c3d4", 3) -> 4093115277153927133 -> Philox -> one number per step
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.inference.settings import SamplingConfig

Floats = NDArray[np.floating[Any]]

UNIFORMS_AT_ONCE = 64
"""Numbers that are read from a stream at once: one call per token would cost more than the draw."""


LIKELY = 32
"""Tokens per row that are sorted first. They hold most draws, and a full sort takes four times as
long as the rest of a draw."""


def stream_seed(seed: int, problem_id: str, sample_index: int) -> int:
    """Return the seed of one sample's random stream, in [0, 2^63)."""
    text = f"{seed}/{problem_id}/{sample_index}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


class Streams:
    """One stream of random numbers (Philox) per row; all rows are read step by step."""

    def __init__(self, seeds: list[int]) -> None:
        self._generators = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self._block = np.zeros((len(seeds), UNIFORMS_AT_ONCE))
        self._step = 0

    def next(self) -> NDArray[np.float64]:
        """Return the next uniform random number of every row: [rows] float64 in [0, 1)."""
        column = self._step % UNIFORMS_AT_ONCE
        if column == 0:
            for row, generator in enumerate(self._generators):
                generator.random(out=self._block[row])
        self._step += 1
        return self._block[:, column]


def penalise(logits: Floats, seen: NDArray[np.bool_], penalty: float) -> Floats:
    """Make tokens already in prompt or response less likely.

    Args:
        logits: [rows, vocabulary] float.
        seen: [rows, vocabulary] bool, True for tokens in the row's prompt or response.
        penalty: Positive logits are divided by it, negative logits are multiplied by it.

    Source: Keskar et al. 2019 (CTRL), arXiv 1909.05858, in the two-sided form of vLLM.
    """
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)


def draw(
    logits: Floats, uniforms: NDArray[np.float64], settings: SamplingConfig
) -> NDArray[np.int64]:
    """Draw one token per row.

    The filters apply in vLLM's order: temperature, min-p, top-k, top-p. The probabilities of the
    remaining tokens are then summed from the most likely token down. The first token whose sum
    exceeds the row's uniform number is drawn.

    Args:
        logits: [rows, vocabulary] float.
        uniforms: [rows] float64, uniform random numbers in [0, 1).
        settings: The sampling fields, with vLLM's meaning; repetition_penalty is not applied here.

    Returns:
        [rows] int64 token ids.
    """
    if settings.temperature == 0:
        best: NDArray[np.int64] = np.argmax(logits, axis=-1)
        return best
    if settings.top_k > 0 or settings.top_p < 1.0:
        return _draw_sorted(logits, uniforms, settings)
    weights = _weights(logits, logits.max(axis=-1, keepdims=True), settings)
    likely = _most_likely(logits, LIKELY)
    sums = np.cumsum(np.take_along_axis(weights, likely, axis=-1), axis=-1)
    chosen = (sums <= (uniforms * weights.sum(axis=-1))[:, None]).sum(axis=-1)
    others = np.flatnonzero(chosen == likely.shape[-1])
    chosen[others] = 0
    tokens: NDArray[np.int64] = np.take_along_axis(likely, chosen[:, None], axis=-1)[:, 0]
    if others.size:
        tokens[others] = _draw_sorted(logits[others], uniforms[others], settings)
    return tokens


def _draw_sorted(
    logits: Floats, uniforms: NDArray[np.float64], settings: SamplingConfig
) -> NDArray[np.int64]:
    """Draw from all tokens that top-k keeps, sorted."""
    tokens = _most_likely(logits, settings.top_k)
    kept = np.take_along_axis(logits, tokens, axis=-1)
    weights = _weights(kept, kept[:, :1], settings)
    sums = np.cumsum(weights, axis=-1)
    # A token is kept if the tokens before it do not reach top_p. The first is always kept.
    weights[sums - weights >= settings.top_p * sums[:, -1:]] = 0.0
    sums = np.cumsum(weights, axis=-1)
    chosen = (sums <= uniforms[:, None] * sums[:, -1:]).sum(axis=-1)
    # Rounding could put a uniform close to 1 after the last token that was kept.
    chosen = np.minimum(chosen, (weights > 0).sum(axis=-1) - 1)
    return np.take_along_axis(tokens, chosen[:, None], axis=-1)[:, 0]


def _weights(logits: Floats, largest: Floats, settings: SamplingConfig) -> NDArray[np.float64]:
    """Probabilities relative to that of the most likely token, after temperature and min-p."""
    relative = (logits.astype(np.float64) - largest) / settings.temperature
    weights = np.exp(relative)
    weights[weights < settings.min_p] = 0.0
    return weights


def log_probs_of(logits: Floats, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the log-prob of one token per row.

    Args:
        logits: [rows, vocabulary] float.
        chosen: [rows] int64 token ids.

    Returns:
        [rows] float32.
    """
    exact = logits.astype(np.float64)
    largest = exact.max(axis=-1, keepdims=True)
    total = np.log(np.exp(exact - largest).sum(axis=-1)) + largest[:, 0]
    return (np.take_along_axis(exact, chosen[:, None], axis=-1)[:, 0] - total).astype(np.float32)


def _most_likely(logits: Floats, top_k: int) -> NDArray[np.int64]:
    """Token ids from the most likely down, ties ordered by id: [rows, top_k or vocabulary]."""
    if not 0 < top_k < logits.shape[-1]:
        return np.argsort(-logits, axis=-1, kind="stable")
    few = np.sort(np.argpartition(-logits, top_k - 1, axis=-1)[:, :top_k], axis=-1)
    order = np.argsort(-np.take_along_axis(logits, few, axis=-1), axis=-1, kind="stable")
    return np.take_along_axis(few, order, axis=-1)
