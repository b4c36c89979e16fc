"""Which repeats are dropped: the first of a kind stays, across blocks too."""

from __future__ import annotations

import numpy as np
import pytest

from pcl_reasoner.contamination import duplicates
from pcl_reasoner.contamination.duplicates import first_kept


def at(*degrees: float) -> np.ndarray:
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


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
    assert first_kept(at(0, 10, 25, 26), 0.95) == {1: (0, 0.9848), 3: (2, 0.9998)}


@pytest.mark.parametrize("block", [1, 3, 7, 64])
def test_blocks_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "BLOCK", block)
    vectors = at(*np.random.default_rng(4).uniform(0, 360, 60))
    found = first_kept(vectors, 0.995)
    expected = one_by_one(vectors, 0.995)
    assert 5 < len(expected) < 55
    assert {index: value[1] for index, value in found.items()} == {
        index: value[1] for index, value in expected.items()
    }
