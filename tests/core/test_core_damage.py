"""Damage of artifacts: lost, cut, changed and added files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core import artifact
from pcl_reasoner.core.damage import Damage, added_files, changed_files, lost_files
from pcl_reasoner.core.hashes import FileHashes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    partial = tmp_path / "pack-1.partial"
    (partial / "rows").mkdir(parents=True)
    (partial / "rows" / "a.txt").write_text("abc")
    (partial / "b.txt").write_text("12345")
    artifact.commit(partial, tmp_path / "pack-1", {"counts": {}})
    return tmp_path / "pack-1"


def files(folder: Path) -> dict[str, dict[str, Any]]:
    manifest = artifact.read_manifest(folder)
    assert manifest is not None
    found: dict[str, dict[str, Any]] = manifest["files"]
    return found


def texts(folder: Path, damages: Sequence[Damage]) -> list[str]:
    return [str(one).removeprefix(f"{folder}/") for one in damages]


def test_nothing_is_wrong(folder: Path, tmp_path: Path) -> None:
    hashes = FileHashes(tmp_path / "memory.json")
    assert lost_files(folder, files(folder)) == []
    assert changed_files(folder, files(folder), hashes) == []
    assert added_files(folder, files(folder)) == []


def test_each_kind_of_damage(folder: Path, tmp_path: Path) -> None:
    wanted, hashes = files(folder), FileHashes(tmp_path / "memory.json")
    (folder / "rows" / "a.txt").write_text("abd")
    (folder / "c.txt").touch()
    (folder / ".nfs0001").touch()  # nobody reads hidden files
    assert lost_files(folder, wanted) == []
    changed = changed_files(folder, wanted, hashes)
    assert texts(folder, changed) == ["rows/a.txt: its content has changed"]
    assert texts(folder, added_files(folder, wanted)) == ["c.txt: was added"]
    (folder / "rows" / "a.txt").unlink()
    (folder / "b.txt").write_text("1234")
    both = ["rows/a.txt: missing", "b.txt: has 4 bytes, 5 were written"]
    assert sorted(texts(folder, lost_files(folder, wanted))) == sorted(both)
    assert sorted(texts(folder, changed_files(folder, wanted, hashes))) == sorted(both)


def test_a_folder_in_the_place_of_a_file_is_missing(folder: Path) -> None:
    wanted = files(folder)
    (folder / "b.txt").unlink()
    (folder / "b.txt").mkdir()
    assert texts(folder, lost_files(folder, wanted)) == ["b.txt: missing"]


def test_a_wrong_remembered_hash_is_no_damage(folder: Path, tmp_path: Path) -> None:
    hashes = FileHashes(tmp_path / "memory.json")
    hashes.remember(folder / "b.txt", "wrong")
    assert changed_files(folder, files(folder), hashes) == []


def test_only_known_files_that_have_changed(folder: Path, tmp_path: Path) -> None:
    hashes = FileHashes(tmp_path / "memory.json")
    hashes.remember(folder / "b.txt", artifact.hash_file(folder / "b.txt"))
    for name, text in (("b.txt", "1234x"), ("rows/a.txt", "abx")):
        (folder / name).write_text(text)
    found = changed_files(folder, files(folder), hashes, only_known=True)
    assert texts(folder, found) == ["b.txt: its content has changed"]


def test_same_size_and_time_is_seen_by_the_change_time(folder: Path, tmp_path: Path) -> None:
    hashes = FileHashes(tmp_path / "memory.json")
    assert changed_files(folder, files(folder), hashes) == []
    before = (folder / "b.txt").stat()
    (folder / "b.txt").write_text("1234x")
    os.utime(folder / "b.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    found = changed_files(folder, files(folder), hashes)
    assert texts(folder, found) == ["b.txt: its content has changed"]
