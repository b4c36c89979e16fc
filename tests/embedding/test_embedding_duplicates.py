"""Which repeats are dropped: the first of a kind stays, across blocks too."""

from __future__ import annotations

import numpy as np
import pytest

from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.embedding import duplicates
from pcl_reasoner.embedding.duplicates import VectorRows, first_kept, neighbours


def at(*degrees: float) -> np.ndarray:
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def rows(vectors: np.ndarray) -> VectorRows:
    """As a cache has them: in another order, among others."""
    order = np.random.default_rng(1).permutation(2 * len(vectors))
    stored = np.zeros((2 * len(vectors), vectors.shape[1]), np.float32)
    stored[order[: len(vectors)]] = vectors
    return VectorRows(stored, order[: len(vectors)])


def one_by_one(vectors: np.ndarray, limit: float) -> dict[int, tuple[int, float]]:
    """The definition."""
    kept: list[int] = []
    dropped: dict[int, tuple[int, float]] = {}
    for index, vector in enumerate(vectors):
        cosines = [(round(float(vectors[k] @ vector), 4), -k) for k in kept]
        best, nearest = max(cosines, default=(-1.0, 0))
        if best >= limit:
            dropped[index] = (-nearest, best)
        else:
            kept.append(index)
    return dropped


def test_the_first_stays_and_the_pairs_own_cosine_is_said() -> None:
    # cos 10° = 0.9848, cos 25° = 0.9063. At 0.95 the second repeats the first; the third is 25°
    # from the first and 15° from the second, which is gone: it stays.
    assert first_kept(rows(at(0, 10, 25, 26)), 0.95) == {1: (0, 0.9848), 3: (2, 0.9998)}


@pytest.mark.parametrize("block", [1, 3, 7, 64])
def test_blocks_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "BLOCK", block)
    vectors = at(*np.random.default_rng(4).uniform(0, 360, 60))
    found = first_kept(rows(vectors), 0.995)
    expected = one_by_one(vectors, 0.995)
    assert 5 < len(expected) < 55
    assert {index: value[1] for index, value in found.items()} == {
        index: value[1] for index, value in expected.items()
    }


@pytest.mark.parametrize("block", [1, 3, 64])
def test_a_neighbour_is_an_earlier_or_a_later_one(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # cos 5° = 0.9962; 40° has none within 0.99 (8.1°).
    monkeypatch.setattr(duplicates, "BLOCK", block)
    assert neighbours(rows(at(0, 40, 80, 5, 100, 86)), 0.99, "exact", NoProgress()) == [0, 2, 3, 5]
    assert neighbours(rows(at(0)), 0.99, "exact", NoProgress()) == []
    assert neighbours(rows(at(0)[:0]), 0.99, "exact", NoProgress()) == []


def test_cells_find_what_all_pairs_find_but_for_a_few() -> None:
    generator = np.random.default_rng(2)
    base = generator.normal(size=(3000, 32))
    near = base[:400] + 0.05 * generator.normal(size=(400, 32))
    vectors = np.concatenate([base, near])
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    exact = set(neighbours(rows(vectors), 0.98, "exact", NoProgress()))
    cells = set(neighbours(rows(vectors), 0.98, "approximate", NoProgress()))
    assert len(exact) == 800
    assert cells <= exact and len(cells) >= 790
    assert neighbours(rows(vectors[:1]), 0.98, "approximate", NoProgress()) == []
