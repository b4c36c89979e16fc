"""Seals of checkpoints: the hash of each file, written beside it while it is new.

    checkpoint/rank_0/policy_rank_0-1_20.safetensors
    checkpoint/rank_0/policy_rank_0-1_20.sha256       {"sha256": …, "value": {"sha256": "9f86d0…",
                                                       "mtime_ns": 1795287667200000000}}

A training that was killed resumes only from files that are as they were written. A file without a
seal, e.g. of a process that was killed before it wrote one, counts as unchanged if it is complete.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import hash_file, read_checked, write_checked

SUFFIX = ".sha256"


def seal_files(folder: Path) -> None:
    """Seal a folder's new safetensors files, and remove the seals of files that are gone.

    A step that is trained again writes its file again, which then gets another seal.
    """
    for seal in folder.glob(f"*{SUFFIX}"):
        if not seal.with_suffix(".safetensors").exists():
            seal.unlink(missing_ok=True)
    for file in folder.glob("*.safetensors"):
        written = file.stat().st_mtime_ns
        if _read(file).get("mtime_ns") != written:
            write_checked(
                file.with_suffix(SUFFIX), {"sha256": hash_file(file), "mtime_ns": written}
            )


def changed_files(files: Iterable[Path]) -> list[Path]:
    """The files that are not as their seals say; all cores read."""
    found = list(files)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        changed = list(threads.map(_is_changed, found))
    return [file for file, is_changed in zip(found, changed, strict=True) if is_changed]


def _is_changed(file: Path) -> bool:
    sealed = _read(file)
    return "sha256" in sealed and sealed["sha256"] != hash_file(file)


def _read(file: Path) -> dict[str, Any]:
    """A file's seal; empty if there is none, or if it is damaged itself."""
    found = read_checked(file.with_suffix(SUFFIX))
    return found if isinstance(found, dict) else {}
