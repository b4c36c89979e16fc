"""Embeddings on disk: nothing twice, and nothing torn is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcl_reasoner.contamination.cache import EmbeddingCache
from pcl_reasoner.contamination.embed import Embedder

MODEL = "53aa51172d142c89d9012cce"
VECTORS = [np.eye(4, dtype=np.float32)[:1], np.eye(4, dtype=np.float32)[1:3]]


class Counting:
    """An embedder's inner part that counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def compute(self, texts: Any, window_tokens: int, first_only: bool) -> Any:
        self.asked += list(texts)
        rows = [np.full((len(text), 4), len(text), np.float32) for text in texts]
        firsts = np.cumsum([0, *(len(row) for row in rows)])[:-1].tolist()
        return np.concatenate(rows), firsts


def opened(folder: Path) -> EmbeddingCache:
    cache = EmbeddingCache(folder, MODEL)
    cache.open(4)
    return cache


def close(cache: EmbeddingCache) -> None:
    cache._lock.close()


def test_what_was_written_is_read_in_any_order(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    keys = [cache.key(text, 256, False) for text in ("one", "two")]
    assert keys[0] not in cache
    cache.write(keys, VECTORS)
    close(cache)
    again = opened(tmp_path)
    for got, expected in zip(again.read(keys[::-1]), VECTORS[::-1], strict=True):
        np.testing.assert_array_equal(got, expected)
    assert again.key("one", 128, False) not in again
    assert again.key("one", 256, True) not in again


@pytest.mark.parametrize("name", ["keys.bin", "vectors.bin"])
def test_a_torn_end_is_cut_off_and_written_anew(tmp_path: Path, name: str) -> None:
    cache = opened(tmp_path)
    keys = [cache.key(text, 256, False) for text in ("one", "two")]
    cache.write(keys, VECTORS)
    close(cache)
    file = tmp_path / MODEL[:16] / name
    file.write_bytes(file.read_bytes()[:-3])
    again = opened(tmp_path)
    assert (keys[0] in again, keys[1] in again) == (True, False)
    again.write(keys[1:], VECTORS[1:])
    close(again)
    for got, expected in zip(opened(tmp_path).read(keys), VECTORS, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_second_process_reads_and_does_not_write(tmp_path: Path) -> None:
    first = opened(tmp_path)
    second = opened(tmp_path)
    assert (first.writes, second.writes) == (True, False)
    key = second.key("one", 256, False)
    second.write([key], VECTORS[:1])
    assert key not in second
    assert (tmp_path / MODEL[:16] / "keys.bin").read_bytes() == b""


def test_only_new_texts_are_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting()
    monkeypatch.setattr(Embedder, "_compute", lambda self, *given: counting.compute(*given))
    embedder = Embedder("x", 4, MODEL, 256, 1, None, EmbeddingCache(tmp_path, MODEL))
    vectors, firsts = embedder.encode(["bb", "a", "bb"], 256)
    assert counting.asked == ["bb", "a"]
    assert firsts == [0, 2, 3]
    np.testing.assert_array_equal(vectors[:, 0], [2, 2, 1, 2, 2])
    vectors, firsts = embedder.encode(["ccc", "bb"], 256)
    assert counting.asked == ["bb", "a", "ccc"]
    assert (firsts, vectors[:, 0].tolist()) == ([0, 3], [3, 3, 3, 2, 2])
