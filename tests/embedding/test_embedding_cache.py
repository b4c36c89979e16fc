"""Embeddings on disk: nothing twice, and nothing torn is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcl_reasoner.embedding.cache import EmbeddingCache

MODEL = "53aa51172d142c89d9012cce"
VECTORS = [np.eye(4, dtype=np.float32)[:1], np.eye(4, dtype=np.float32)[1:3]]


def opened(folder: Path | None) -> EmbeddingCache:
    return EmbeddingCache(folder, MODEL, 4)


def test_what_was_written_is_read_in_any_order(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    keys = [cache.key(text, 256, False) for text in ("one", "two")]
    assert keys[0] not in cache
    cache.write(keys, VECTORS)
    cache.close()
    again = opened(tmp_path)
    for got, expected in zip(again.read(keys[::-1]), VECTORS[::-1], strict=True):
        np.testing.assert_array_equal(got, expected)
    others = [again.key("one", 128, False), again.key("one", 256, True)]
    others.append(again.key("one", 256, False, fast=True))
    assert not any(key in again for key in others) and len({keys[0], *others}) == 4


def test_the_first_window_of_a_text_is_found(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    keys = [cache.key(text, 256, False) for text in ("two windows", "one")]
    assert cache.all().shape == (0, 4)
    cache.write(keys, VECTORS[::-1])
    assert cache.first_rows([keys[1], keys[0]]).tolist() == [2, 0]
    np.testing.assert_array_equal(cache.all(), np.eye(4)[[1, 2, 0]])


@pytest.mark.parametrize("name", ["keys.bin", "vectors.bin"])
def test_a_torn_end_is_cut_off_and_written_anew(tmp_path: Path, name: str) -> None:
    cache = opened(tmp_path)
    keys = [cache.key(text, 256, False) for text in ("one", "two")]
    cache.write(keys, VECTORS)
    cache.close()
    file = tmp_path / MODEL[:16] / name
    file.write_bytes(file.read_bytes()[:-3])
    again = opened(tmp_path)
    assert (keys[0] in again, keys[1] in again) == (True, False)
    again.write(keys[1:], VECTORS[1:])
    again.close()
    for got, expected in zip(opened(tmp_path).read(keys), VECTORS, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_second_process_has_a_folder_of_its_own_that_goes_with_it(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    key = second.key("one", 256, False)
    second.write([key], VECTORS[:1])
    np.testing.assert_array_equal(second.read([key])[0], VECTORS[0])
    assert key not in first
    assert (tmp_path / MODEL[:16] / "keys.bin").read_bytes() == b""
    folder = second._folder
    assert folder.is_dir() and tmp_path not in folder.parents
    second.close()
    assert not folder.exists()


def test_without_a_folder_vectors_are_kept_while_they_are_needed() -> None:
    cache = opened(None)
    key = cache.key("one", 256, False)
    cache.write([key], VECTORS[:1])
    assert key in cache
    cache.close()
    assert not cache._folder.exists()
