"""Lists of files: a folder that can be read only in part is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.listing import files_below


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def listed(folder: Path, *patterns: str) -> list[str]:
    found = files_below(folder, patterns or ("**/*",))
    return [path.relative_to(folder).as_posix() for path in found]


def test_files_of_all_patterns_sorted_and_without_hidden_ones(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "a.csv", "sub/c.txt", ".cache/d.txt", "sub/.e.txt", "f.md")
    assert listed(tmp_path) == ["a.csv", "b.txt", "f.md", "sub/c.txt"]
    assert listed(tmp_path, "*.csv", "**/*.txt") == ["a.csv", "b.txt", "sub/c.txt"]
    assert listed(tmp_path / "sub") == ["c.txt"]
    assert files_below(tmp_path / "b.txt") == [tmp_path / "b.txt"]
    assert files_below(tmp_path / "absent") == []


def test_a_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    write(tmp_path / "blobs", "x")
    folder = write(tmp_path / "data", "a.txt")
    (folder / "b.txt").symlink_to("../blobs/x")
    assert listed(folder) == ["a.txt", "b.txt"]


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    (tmp_path / "b.txt").symlink_to("/absent/blob")
    with pytest.raises(InputError, match=r"b\.txt: a link to /absent/blob, which is not there"):
        listed(tmp_path)
    assert listed(tmp_path, "a*") == ["a.txt"]  # nobody asked for it


def test_a_link_to_a_folder_is_not_skipped_silently(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", "b.txt")
    folder = write(tmp_path / "data", "a.txt")
    (folder / "sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="data/sub: a link to a folder, which is not followed"):
        listed(folder)


def test_what_is_no_file(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    os.mkfifo(tmp_path / "b.txt")
    with pytest.raises(InputError, match=r"b\.txt: neither a file nor a folder"):
        listed(tmp_path)


@pytest.mark.parametrize("name", ["sub", "a.txt"])
def test_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    """As root everything can be read, so another user looks."""
    write(tmp_path, "a.txt", "sub/b.txt")
    (tmp_path / name).chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        for one in (tmp_path, *tmp_path.parents):
            if one.name.startswith(("pytest-of", "pytest-", "popen-", "test_")):
                one.chmod(0o755)
        os.setresuid(65534, 65534, 0)
    try:
        with pytest.raises(InputError, match=f"{name}: cannot be read"):
            listed(tmp_path)
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
        (tmp_path / name).chmod(0o755)


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["d-00000-of-00003.parquet", "d-00002-of-00003.parquet"], "d-00001-of-00003.parquet"),
        (["d-00001-of-00003.parquet"], "d-00000-of-00003.parquet"),
        (["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"], None),
        (["m-00002-of-00002.safetensors"], "m-00001-of-00002.safetensors"),
        (["d-00000-of-00001.parquet", "e-00000-of-00001.parquet"], None),
        (["a/d-00000-of-00002.parquet", "b/d-00001-of-00002.parquet"], "a/d-00001-of-00002"),
    ],
)
def test_a_missing_part_of_a_set(tmp_path: Path, names: list[str], missing: str | None) -> None:
    write(tmp_path, *names)
    if missing is None:
        assert listed(tmp_path) == names
        return
    with pytest.raises(InputError, match=f"{missing}.*: missing, and other parts of the"):
        listed(tmp_path)


def test_parts_that_are_named_are_enough(tmp_path: Path) -> None:
    write(tmp_path, "d-00001-of-00003.parquet")
    assert listed(tmp_path, "d-00001-of-*.parquet") == ["d-00001-of-00003.parquet"]
    with pytest.raises(InputError, match="d-00000-of-00003"):
        listed(tmp_path, "*.parquet")
