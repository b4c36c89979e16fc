"""Reads all files of finished artifacts and fetched repositories, and compares their hashes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact
from pcl_reasoner.core.damage import Damage, added_files, changed_files
from pcl_reasoner.core.errors import InputError, StageError, shortened
from pcl_reasoner.core.hashes import FileHashes, Report
from pcl_reasoner.runner import sources
from pcl_reasoner.runner.plan import FINGERPRINT_DIGITS

HUB = "hub"
"""The folder of fetched repositories, in the folder of all runs."""


@dataclass(frozen=True)
class Verified:
    """An artifact or a fetched repository, and what is wrong with it.

    Args:
        folder: Its folder.
        files: Number of files.
        size: Bytes of all files.
        damages: Damaged, missing and added files.
        maker: The stage that makes it, or the hub.
        remedy: What to do.
    """

    folder: Path
    files: int
    size: int
    damages: list[Damage]
    maker: str
    remedy: str


def verify_runs(runs: Path, run: str | None, report: Report) -> list[Verified]:
    """Compare everything that is finished below a folder with its hashes.

    Args:
        runs: Folder of all runs.
        run: Name of one run; None: all of them, and what was fetched from the hub.
        report: Receives the bytes that are read, and all bytes.

    Raises:
        InputError: There is no such run.
    """
    folders = sorted(_run_folders(runs))
    names = [one.name for one in folders]
    if run is not None and run not in names:
        known = ", ".join(names) or "none"
        raise InputError(f"{shortened(run, 100)}: no such run. Runs in {runs}: {known}.")
    folders = [runs / run] if run is not None else folders
    artifacts = [one for folder in folders for one in _listed(folder) if _is_made(one)]
    fetched = sorted((runs / HUB).glob(f"*/{sources.COMPLETE}")) if run is None else []
    records = {one: (artifact.read_manifest(one) or {}).get("files") for one in artifacts}
    records |= {one.parent: sources.fetched_files(one.parent) for one in fetched}
    hashes = FileHashes(runs / ".hashes.json", trusted=False)
    hashes.sha256_of_all(
        [folder / name for folder, files in records.items() for name in files or ()], report
    )
    found = [_verified(folder, files, hashes) for folder, files in records.items()]
    hashes.save()
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise StageError(f"{folder}: cannot be read ({error.strerror}).") from error


def _run_folders(runs: Path) -> Iterator[Path]:
    if runs.is_dir():
        yield from (
            one
            for one in runs.iterdir()
            if one.is_dir() and one.name != HUB and not one.name.startswith(".")
        )


_ARTIFACT = re.compile(rf".+-[0-9a-f]{{{FINGERPRINT_DIGITS}}}")
"""The name of an artifact: its stage and the start of its fingerprint."""


def _is_made(folder: Path) -> bool:
    """Whether a folder is finished; without a manifest its name still says that it was."""
    return folder.is_dir() and bool(_ARTIFACT.fullmatch(folder.name))


def _verified(folder: Path, files: dict[str, Any] | None, hashes: FileHashes) -> Verified:
    is_artifact = folder.parent.name != HUB
    record = folder / (artifact.MANIFEST if is_artifact else sources.COMPLETE)
    if files is None:
        what = "damaged: it does not have its own checksum" if record.is_file() else "missing"
        damages = [Damage(record, what)]
    else:
        damages = [*changed_files(folder, files, hashes), *added_files(folder, files)]
    size = sum(int(one["bytes"]) for one in (files or {}).values())
    maker, remedy = _remedy(folder) if is_artifact else (f"fetched: {folder.name}", _FETCH)
    return Verified(folder, len(files or {}), size, damages, maker, remedy)


_FETCH = "the next run that reads it fetches it again"


def _remedy(folder: Path) -> tuple[str, str]:
    """The stage that makes an artifact, and the command that makes it again."""
    manifest = artifact.read_manifest(folder)
    if manifest is None:
        stage = folder.name.rpartition("-")[0]
        return f"{folder.parent.name}/{stage}", "run the recipe again: the stage is made again"
    arguments = [*manifest.get("arguments", [manifest["recipe"]]), "--until", manifest["name"]]
    return (
        f"{manifest['recipe']}/{manifest['name']}",
        f"pclr-ms run {shlex.join(arguments)} --runs {shlex.quote(str(folder.parent.parent))}",
    )
