"""Attention by segments against PyTorch's with a dense mask, and what it never looks at."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pcl_reasoner.trainer import segment_attention
from pcl_reasoner.trainer.segment_attention import (
    attend,
    attend_backward,
    spans_of_ends,
    spans_of_mask,
    tiles,
    tiles_of_masks,
)

HEADS, GROUPS, LENGTH, SIZE = 4, 2, 11, 8
SCALE = SIZE**-0.5


def mask_of(segments: list[int]) -> np.ndarray:
    """[S, S] uint8: 0 where the query's segment is the key's and the key is not later."""
    ids = np.array(segments)
    same = ids[:, None] == ids[None, :]
    return (~np.tril(same)).astype(np.uint8)


ROWS = np.stack([mask_of([0] * 4 + [1] + [2] * 6), mask_of([0] * 11)])
"""Two rows: segments of 4, 1 and 6 tokens; one segment."""


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three queries a tile, so that a segment has several and the last is not full."""
    monkeypatch.setattr(segment_attention, "TILE", 3)


def drawn(heads: int, seed: int) -> np.ndarray:
    shape = (len(ROWS), heads, LENGTH, SIZE)
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


QUERY, KEY, VALUE, GIVEN = (
    drawn(heads, seed) for seed, heads in enumerate((HEADS, GROUPS, GROUPS, HEADS))
)


def of_torch(forbidden: np.ndarray) -> list[np.ndarray]:
    """Output and the gradients by query, key and value."""
    leaves = [torch.tensor(array, requires_grad=True) for array in (QUERY, KEY, VALUE)]
    query, key, value = leaves
    key, value = (array.repeat_interleave(HEADS // GROUPS, 1) for array in (key, value))
    allowed = torch.from_numpy(forbidden == 0)[:, None]
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    out.backward(torch.from_numpy(GIVEN))
    return [out.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)]


def found_by(forbidden: np.ndarray) -> list[np.ndarray]:
    parts = tiles_of_masks(forbidden[:, None])
    out = attend(QUERY, KEY, VALUE, parts, SCALE)
    return [out, *attend_backward(QUERY, KEY, VALUE, GIVEN, parts, SCALE)]


@pytest.mark.parametrize("kind", ["segments", "a mask of another form"])
def test_output_and_gradients_are_pytorchs(kind: str) -> None:
    forbidden = ROWS.copy()
    if kind != "segments":
        # The first row's last token sees token 0 of another segment; the second's not itself.
        forbidden[0, 10, 0], forbidden[1, 5, 5] = 0, 1
    for mine, expected in zip(found_by(forbidden), of_torch(forbidden), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def test_segments_are_read_from_the_mask() -> None:
    assert spans_of_mask(ROWS[0]) == [(0, 4), (4, 5), (5, 11)]
    assert spans_of_mask(ROWS[1]) == [(0, 11)]
    later = ROWS[0].copy()
    later[2, 3] = 0
    assert spans_of_mask(later) is None
    apart = ROWS[1].copy()
    apart[10, 4] = 1
    assert spans_of_mask(apart) is None


def test_segments_by_their_ends() -> None:
    # Three segments in five places, and two tokens after the last.
    ends = np.array([4, 5, 9, 9, 9], np.int32)
    assert spans_of_ends(ends, 11) == [(0, 4), (4, 5), (5, 9), (9, 11)]
    assert spans_of_ends(np.array([11], np.int32), 11) == [(0, 11)]


def test_no_tile_has_a_pair_of_two_segments_or_keys_after_its_last_query() -> None:
    found = [(tile.queries, tile.keys) for tile in tiles(0, [(0, 4), (4, 5), (5, 11)])]
    assert found == [
        (slice(0, 3), slice(0, 3)),
        (slice(3, 4), slice(0, 4)),
        (slice(4, 5), slice(4, 5)),
        (slice(5, 8), slice(5, 8)),
        (slice(8, 11), slice(5, 11)),
    ]


def test_what_is_not_looked_at_may_be_no_number() -> None:
    key, value = KEY.copy(), VALUE.copy()
    key[0, :, :5], value[0, :, :5] = np.nan, np.nan
    parts = tiles_of_masks(ROWS[:, None])
    out = attend(QUERY, key, value, parts, SCALE)
    np.testing.assert_array_equal(out[0, :, 5:], attend(QUERY, KEY, VALUE, parts, SCALE)[0, :, 5:])
    by_query, by_key, _ = attend_backward(QUERY, key, value, GIVEN, parts, SCALE)
    assert np.isfinite(by_query[0, :, 5:]).all()
    assert np.isfinite(by_key[0, :, 5:]).all()


def test_a_token_that_may_look_nowhere_stays_a_number() -> None:
    forbidden = ROWS.copy()
    forbidden[0, 7] = 1
    out = attend(QUERY, KEY, VALUE, tiles_of_masks(forbidden[:, None]), SCALE)
    # All scores are equally low, so it gets the mean of the values.
    np.testing.assert_allclose(out[0, :2, 7], np.tile(VALUE[0, 0].mean(0), (2, 1)), rtol=1e-4)
