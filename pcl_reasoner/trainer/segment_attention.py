"""Computes causal attention inside each segment of packed rows, and only there.

    out_t = Σ_s p_ts v_s,   p_t = softmax over s of scale · q_t·k_s,   s ≤ t, same segment

A row of segments [0, 3), [3, 7) costs 3² + 4² pairs, not 7². A row is processed in tiles of a few
hundred queries, so that its scores are never in memory all at once. The code is in NumPy and for
CPUs, where MindSpore has no fused attention.

Shapes: query [B, N, S, D]; key and value [B, K, S, D], N a multiple of K (grouped queries).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Spans = list[tuple[int, int]]
"""For each segment: its first token, and one past its last token."""

TILE = 256
"""Queries per tile."""
LOW = np.float32(-1e30)
"""Added to a forbidden score. It is finite: a query without allowed keys gives no NaN."""


@dataclass(frozen=True)
class Tile:
    """Some queries and the keys that they may attend to.

    Args:
        row: Index of the row in the batch.
        queries: Slice of the row's tokens.
        keys: Slice of the row's tokens.
        bias: [queries, n] float32 for the last n keys: 0, or LOW where attention is forbidden.
    """

    row: int
    queries: slice
    keys: slice
    bias: Array


def spans_of_ends(ends: NDArray[np.int32], length: int) -> Spans:
    """Find a row's segments from their cumulative ends; tokens after the last end are one segment.

    Args:
        ends: [G], ascending; repeated values, 0 and S are ignored.
        length: S.
    """
    inside = sorted({int(end) for end in ends if 0 < end < length})
    return list(zip([0, *inside], [*inside, length], strict=True))


def spans_of_mask(forbidden: NDArray[np.uint8]) -> Spans | None:
    """Find a row's segments from its mask; None if the mask is not causal inside segments.

    Args:
        forbidden: [S, S], 1 where attention is forbidden.
    """
    positions = np.arange(len(forbidden), dtype=np.int32)
    first = np.argmin(forbidden, axis=1).astype(np.int32)
    allowed = (positions >= first[:, None]) & (positions <= positions[:, None])
    if not np.array_equal(forbidden == 0, allowed):
        return None
    return spans_of_ends(np.unique(first), len(forbidden))


def tiles(row: int, spans: Spans) -> Iterator[Tile]:
    """The tiles of a row of segments; keys after a tile's last query are left out."""
    triangle = np.triu(np.full((TILE, TILE), LOW, np.float32), 1)
    for start, end in spans:
        for first in range(start, end, TILE):
            last = min(first + TILE, end)
            size = last - first
            yield Tile(row, slice(first, last), slice(start, last), triangle[:size, :size])


def masked_tiles(row: int, forbidden: NDArray[np.uint8]) -> Iterator[Tile]:
    """The tiles of a row whose mask is not causal inside segments; each tile has all keys."""
    length = len(forbidden)
    for first in range(0, length, TILE):
        rows = slice(first, min(first + TILE, length))
        yield Tile(row, rows, slice(0, length), forbidden[rows].astype(np.float32) * LOW)


def tiles_of_masks(forbidden: NDArray[np.uint8]) -> list[Tile]:
    """The tiles of a batch, from its masks.

    Args:
        forbidden: [B, 1, S, S] or [B, S, S], 1 where attention is forbidden.
    """
    found: list[Tile] = []
    for row, mask in enumerate(forbidden.reshape(-1, *forbidden.shape[-2:])):
        spans = spans_of_mask(mask)
        found += masked_tiles(row, mask) if spans is None else tiles(row, spans)
    return found


def attend(query: Array, key: Array, value: Array, tiles: Sequence[Tile], scale: float) -> Array:
    """Compute attention, [B, N, S, D].

    Args:
        query: [B, N, S, D].
        key: [B, K, S, D].
        value: [B, K, S, D].
        tiles: Tiles that together contain every query exactly once.
        scale: Factor of the scores, usually 1/√D.
    """
    out = np.empty(query.shape, np.float32)
    for tile in tiles:
        weights = _attention_weights(query, key, tile, scale)
        found = weights @ value[tile.row, :, tile.keys]
        out[tile.row, :, tile.queries] = found.reshape(len(query[0]), -1, query.shape[-1])
    return out


def attend_backward(
    query: Array, key: Array, value: Array, out_gradient: Array, tiles: Sequence[Tile], scale: float
) -> tuple[Array, Array, Array]:
    """Compute the gradients with respect to query, key and value.

    The attention weights p are computed again. With g = ∂loss/∂out:

        ∂v_s = Σ_t p_ts g_t;   d_ts = g_t·v_s;   ∂(q_t·k_s) = scale · p_ts (d_ts − Σ_u p_tu d_tu)

    Args:
        query: [B, N, S, D].
        key: [B, K, S, D].
        value: [B, K, S, D].
        out_gradient: g, [B, N, S, D].
        tiles: The same tiles as for ``attend``.
        scale: Factor of the scores.
    """
    by_query = np.empty(query.shape, np.float32)
    by_key, by_value = np.zeros(key.shape, np.float32), np.zeros(value.shape, np.float32)
    for tile in tiles:
        keys = (tile.row, slice(None), tile.keys)
        weights = _attention_weights(query, key, tile, scale)
        gradient = _grouped(out_gradient, tile, len(key[0]))
        by_value[keys] += weights.swapaxes(1, 2) @ gradient
        scores = gradient @ value[keys].swapaxes(1, 2)
        scores -= np.einsum("kts,kts->kt", weights, scores)[..., None]
        scores *= weights
        scores *= scale
        found = scores @ key[keys]
        by_query[tile.row, :, tile.queries] = found.reshape(len(query[0]), -1, query.shape[-1])
        by_key[keys] += scores.swapaxes(1, 2) @ _grouped(query, tile, len(key[0]))
    return by_query, by_key, by_value


def _grouped(heads: Array, tile: Tile, groups: int) -> Array:
    """Concatenate a tile's T queries of the heads that share a key head: [K, N/K·T, D]."""
    return heads[tile.row, :, tile.queries].reshape(groups, -1, heads.shape[-1])


def _attention_weights(query: Array, key: Array, tile: Tile, scale: float) -> Array:
    """The softmax of a tile's scores, [K, N/K·T, keys]."""
    groups = len(key[0])
    scores = _grouped(query, tile, groups) @ key[tile.row, :, tile.keys].swapaxes(1, 2)
    scores *= scale
    by_head = scores.reshape(groups, -1, *tile.bias.shape[:1], scores.shape[-1])
    by_head[..., -tile.bias.shape[1] :] += tile.bias
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores
