"""Hashes of files: remembered while the file is as it was, and never trusted when damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pcl_reasoner.core import artifact
from pcl_reasoner.core.hashes import FileHashes

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("abc")
    return path


def saved(path: Path, file: Path, sha256: str) -> FileHashes:
    hashes = FileHashes(path)
    hashes.remember(file, sha256)
    hashes.save()
    return FileHashes(path)


def test_a_known_file_is_not_read_again(tmp_path: Path, file: Path) -> None:
    hashes = saved(tmp_path / "memory.json", file, "remembered")
    assert hashes.sha256(file) == "remembered"
    hashes.forget(file)
    assert hashes.sha256(file) == ABC


def test_what_was_remembered_is_not_trusted_on_request(tmp_path: Path, file: Path) -> None:
    saved(tmp_path / "memory.json", file, "remembered")
    assert FileHashes(tmp_path / "memory.json", trusted=False).sha256(file) == ABC


def test_new_content_of_the_same_size_and_time_is_read(tmp_path: Path, file: Path) -> None:
    """Somebody who sets the modification time back still changes the change time."""
    before = file.stat()
    hashes = saved(tmp_path / "memory.json", file, "remembered")
    file.write_text("xyz")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert hashes.sha256(file) == artifact.hash_file(file) != "remembered"


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"null", b"{}", b"[" * 100_000])
def test_a_broken_memory_is_forgotten(tmp_path: Path, file: Path, content: bytes) -> None:
    (tmp_path / "memory.json").write_bytes(content)
    assert FileHashes(tmp_path / "memory.json").sha256(file) == ABC


def test_a_flipped_bit_in_the_memory_is_noticed(tmp_path: Path, file: Path) -> None:
    """Else a source would get another fingerprint, and everything would run again."""
    saved(tmp_path / "memory.json", file, ABC)
    value = json.loads((tmp_path / "memory.json").read_text())
    value["value"][str(file.resolve())][-1] = ABC.replace("a", "b", 1)
    (tmp_path / "memory.json").write_text(json.dumps(value))
    assert FileHashes(tmp_path / "memory.json").sha256(file) == ABC


def test_all_files_are_hashed_and_missing_ones_left_out(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "b.txt"
    other.write_text("12345")
    hashes, seen = FileHashes(tmp_path / "memory.json"), []
    hashes.sha256_of_all([file, other, tmp_path / "c.txt"], lambda *one: seen.append(one))
    assert seen == [(3, 8), (8, 8)]
    hashes.remember(file, "kept")
    hashes.sha256_of_all([file, other], lambda *one: seen.append(one))
    assert seen == [(3, 8), (8, 8)]  # nothing is new
    assert hashes.sha256(file) == "kept"
