"""Seals find a checkpoint that changed later, but not one that training wrote again."""

from __future__ import annotations

import os
from pathlib import Path

from pcl_reasoner.weights.seals import changed_files, seal_files


def write(file: Path, content: bytes, when: int) -> None:
    file.write_bytes(content)
    os.utime(file, (when, when))


def test_what_changes_after_its_seal_is_found(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.safetensors" for name in "abc"]
    for file in files:
        write(file, b"weights", 100)
    seal_files(tmp_path)
    assert changed_files(files) == []
    write(files[1], b"wEights", 100)  # as a disk does it: its size and its time stay
    files[2].with_suffix(".sha256").write_text("{")  # a damaged seal says nothing
    write(files[2], b"wEights", 100)
    assert changed_files(files) == [files[1]]


def test_a_file_that_is_written_again_gets_another_seal(tmp_path: Path) -> None:
    file, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    write(file, b"first", 100)
    write(other, b"other", 100)
    seal_files(tmp_path)
    before = other.with_suffix(".sha256").stat().st_mtime_ns
    write(file, b"again", 200)
    other.with_suffix(".safetensors").chmod(0o400)
    seal_files(tmp_path)
    assert changed_files([file, other]) == []
    assert other.with_suffix(".sha256").stat().st_mtime_ns == before  # nothing is hashed twice


def test_seals_go_with_their_files(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    write(file, b"first", 100)
    seal_files(tmp_path)
    file.unlink()
    seal_files(tmp_path)
    assert list(tmp_path.iterdir()) == []
