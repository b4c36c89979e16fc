"""Compares the files of an artifact with its manifest.

runs/v15_opg/pack-1a2b3c4d/rows/data.arrow: missing
runs/v15_opg/pack-1a2b3c4d/rows/data.arrow: has 900 bytes, 1,024 were written
runs/v15_opg/pack-1a2b3c4d/rows/data.arrow: its content has changed
runs/v15_opg/pack-1a2b3c4d/rows/more.arrow: was added
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact
from pcl_reasoner.core.hashes import FileHashes

Files = Mapping[str, Mapping[str, Any]]
"""Relative path -> ``sha256`` and ``bytes``, as in a manifest's ``files``."""


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written.

    Args:
        file: The file.
        problem: What is wrong, after the file's name and a colon.
        added: True for a file that the manifest does not have.
    """

    file: Path
    problem: str
    added: bool = False

    def __str__(self) -> str:
        """The file and its problem."""
        return f"{self.file}: {self.problem}"


def lost_files(folder: Path, files: Files) -> list[Damage]:
    """The files that are missing or have another size; no content is read."""
    found = []
    for name, written in files.items():
        file = folder / name
        try:
            size = file.stat().st_size if file.is_file() else None
        except OSError as error:
            found.append(Damage(file, f"cannot be read ({error.strerror})"))
            continue
        if size is None:
            found.append(Damage(file, "missing"))
        elif size != written["bytes"]:
            found.append(Damage(file, f"has {size:,} bytes, {written['bytes']:,} were written"))
    return found


def changed_files(
    folder: Path, files: Files, hashes: FileHashes, only_known: bool = False
) -> list[Damage]:
    """The files that are missing, or whose content is not what was written.

    Args:
        folder: The artifact.
        files: Its manifest's ``files``.
        hashes: Remembered hashes; a file that has not changed since is not read again.
        only_known: Leave out files that ``hashes`` knows nothing about.
    """
    found = lost_files(folder, files)
    lost = {one.file for one in found}
    for name, written in files.items():
        file = folder / name
        if file in lost or (only_known and not hashes.is_known(file)):
            continue
        try:
            if not _is_as_written(file, str(written["sha256"]), hashes):
                found.append(Damage(file, "its content has changed"))
        except OSError as error:
            found.append(Damage(file, f"cannot be read ({error.strerror})"))
    return found


def _is_as_written(file: Path, sha256: str, hashes: FileHashes) -> bool:
    if hashes.sha256(file) == sha256:
        return True
    hashes.forget(file)  # what is remembered may itself be damaged
    return hashes.sha256(file) == sha256


def added_files(folder: Path, files: Files) -> list[Damage]:
    """The files that the manifest does not have; hidden files are left out, no stage reads them."""
    names = (path.relative_to(folder) for path in artifact.payload_files(folder))
    added = [
        name
        for name in names
        if name.as_posix() not in files and not any(part.startswith(".") for part in name.parts)
    ]
    return [Damage(folder / name, "was added", added=True) for name in added]
