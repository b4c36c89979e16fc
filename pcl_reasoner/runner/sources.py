"""Finds, fetches and fingerprints sources that are paths or hub repositories."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Source


class HashCache:
    """Remembers the SHA-256 of files by path, inode, size and modification time.

    ``runs/.hashes.json``: {"/data/a.parquet": [inode, size, mtime_ns, "sha256…"], …}
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = False
        self._known: dict[str, list[Any]] = {}
        with suppress(OSError, ValueError):
            value = json.loads(path.read_text(encoding="utf-8"))
            self._known = value if isinstance(value, dict) else {}

    def sha256(self, file: Path) -> str:
        """The file's hash; it is computed only if the file is new or has changed."""
        status = file.stat()
        identity = [status.st_ino, status.st_size, status.st_mtime_ns]
        key = str(file.resolve())
        known = self._known.get(key)
        if not isinstance(known, list) or known[:3] != identity:
            self._known[key] = [*identity, artifact.hash_file(file)]
            self._changed = True
        return str(self._known[key][3])

    def save(self) -> None:
        """Write the hashes if there are new ones. A read-only disk is no error: this is a cache."""
        if not self._changed:
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            artifact.write_atomically(self._path, json.dumps(self._known))


def files_of(root: Path, pattern: str | None = None) -> list[Path]:
    """The files of a path source, sorted; empty if there are none.

    Hidden files and folders are left out, because download tools write changing metadata there.

    Args:
        root: A file or folder.
        pattern: Glob of the files to use in a folder; all files when None.
    """
    if root.is_file():
        return [root]
    found = [path for path in root.glob(pattern or "**/*") if path.is_file()]
    return sorted(path for path in found if "/." not in f"/{path.relative_to(root).as_posix()}")


def fingerprint_of(source: Source, memory: HashCache) -> str | None:
    """The fingerprint of a path source or a hub repository.

    A path is identified by its files' relative names and contents; a hub repository by its id,
    revision, kind and file pattern.

    Returns:
        The fingerprint; None if a path has no files.
    """
    if source.hub:
        return artifact.fingerprint([source.hub, source.revision, source.kind, source.files])
    return content_of(Path(str(source.path)).expanduser(), memory, source.files)


def content_of(root: Path, memory: HashCache, pattern: str | None = None) -> str | None:
    """The fingerprint of a file, or of a folder's matching files; None if there are no files."""
    base = root.parent if root.is_file() else root
    found = files_of(root, pattern)
    identity = [[path.relative_to(base).as_posix(), memory.sha256(path)] for path in found]
    return artifact.fingerprint(identity) if found else None


def missing(name: str, source: Source) -> str:
    """The error message for a path source that has no files."""
    pattern = f" with files {source.files!r}" if source.files else ""
    return (
        f"source {name}: {source.path}{pattern}: no such files. Put the data there, or give "
        f"another path with sources.{name}.path=PATH."
    )


def hub_folder(source: Source, runs: Path) -> Path:
    """The folder in which a hub repository's files are kept."""
    identity = f"{source.hub}@{source.revision}".replace("/", "--")
    # Two sources may use different files of one repository.
    part = f"--{artifact.fingerprint(source.files)[:8]}" if source.files else ""
    return runs / "hub" / f"{source.kind}--{identity}{part}"


def fetched(folder: Path) -> bool:
    """True if all files of a hub repository have been fetched."""
    return (folder / ".complete").exists()


def fetch(name: str, source: Source, runs: Path) -> Path:
    """Download a hub repository; an interrupted download is resumed.

    Returns:
        The folder with the files.

    Raises:
        StageError: The hub does not answer, or has no such repository or no matching files.
    """
    folder = hub_folder(source, runs)
    if fetched(folder):
        return folder
    import huggingface_hub

    try:
        huggingface_hub.snapshot_download(
            str(source.hub),
            revision=source.revision,
            repo_type=source.kind,
            local_dir=folder,
            allow_patterns=source.files,
        )
    except Exception as error:
        raise StageError(
            f"source {name}: {source.hub} at {source.revision} could not be fetched "
            f"({type(error).__name__}: {error}). Run again to resume the download, or "
            f"download it elsewhere and give the folder: sources.{name}.path=PATH."
        ) from error
    if not files_of(folder):
        raise StageError(
            f"source {name}: {source.hub} at {source.revision} has no files "
            f"{source.files or ''}. Correct sources.{name}.files."
        )
    (folder / ".complete").touch()
    return folder
