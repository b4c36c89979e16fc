"""Artifacts: folders that are either complete or do not exist.

    runs/v15_opg/pack-1a2b3c4d/
        rows/…                 the payload
        quarantined.jsonl      refused records, with file, row and reason
        manifest.json          written last; a folder with a manifest is done

A stage writes into ``pack-1a2b3c4d.partial``. When it has finished, every file is fsynced, the
manifest is written, and the folder is renamed. A half-written artifact therefore never has its
final name.
"""

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError

MANIFEST = "manifest.json"
QUARANTINED = "quarantined.jsonl"
SECONDS = "seconds.jsonl"
"""A stage's file of this name holds times. It is the only one that differs between equal runs."""
CHECKSUM = "manifest_sha256"
"""Key of a manifest: the hash of all other keys."""
TEMPORARY_FILES = ".*.tmp"
"""Pattern of the files that `atomic_file` has not completed."""


def canonical_json(value: Any) -> str:
    """Encode a value so that equal values give equal text.

    Raises:
        ValueError: The value holds NaN or infinity.
        TypeError: The value holds something that JSON cannot represent.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def fingerprint(value: Any) -> str:
    """SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode("utf-8")).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 (hex) of a file's content."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def payload_files(folder: Path) -> list[Path]:
    """All files of an artifact except its own manifest, sorted by relative path."""
    manifest = folder / MANIFEST
    files = (path for path in folder.rglob("*") if path.is_file() and path != manifest)
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a finished artifact; None if the artifact is not finished.

    A manifest that does not have its own checksum is treated as missing: only a broken disk, or an
    editor, leaves such a file.

    Raises:
        StageError: There is a manifest, and it cannot be read.
    """
    path = folder / MANIFEST
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return value if _is_sealed(value) else None
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    except OSError as error:
        raise StageError(
            f"{path}: cannot be read ({error.strerror}). Give yourself the permission to read it, "
            "or choose another folder with --runs."
        ) from error


def seal(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest with its own checksum as its last key."""
    return {**manifest, CHECKSUM: fingerprint(manifest)}


def _is_sealed(value: Any) -> bool:
    if not isinstance(value, dict) or not {"counts", "files"} <= value.keys():
        return False
    rest = {key: one for key, one in value.items() if key != CHECKSUM}
    return bool(value.get(CHECKSUM) == fingerprint(rest))


def content(files: Mapping[str, Mapping[str, Any]], below: str = "") -> str:
    """The hash of an artifact's content, from its manifest's ``files``.

    Args:
        files: Relative path -> ``sha256`` and ``bytes``.
        below: Count only this file, or the files in this folder.
    """
    parts = Path(below).parts
    found = [
        [name, one["sha256"]]
        for name, one in sorted(files.items())
        if Path(name).parts[: len(parts)] == parts and Path(name).name != SECONDS
    ]
    return fingerprint(found)


def fsync(path: Path) -> None:
    """Make a file's or a folder's content durable: it survives a power cut.

    Raises:
        OSError: The disk is full or fails; the error names the path.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside ``path``; it is renamed to ``path`` when it is complete.

    A task that runs twice replaces the file by an equal one. No reader sees a half-written file.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(path: Path, seconds: float = 0) -> None:
    """Remove the temporary files that killed writers of a file left.

    Args:
        path: The file.
        seconds: Only those that nobody has written to for as long: 0 if no other process can be
            writing the file.
    """
    now = time.time()
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        with suppress(OSError):
            if now - left.stat().st_mtime >= seconds:
                left.unlink()


def write_atomically(path: Path, text: str) -> None:
    """Write a small file; a reader sees either the complete old or the complete new content."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
        fsync(temporary)


def write_checked(path: Path, value: Any) -> None:
    """Write a JSON value together with its hash."""
    write_atomically(path, json.dumps({"sha256": fingerprint(value), "value": value}))


def read_checked(path: Path) -> Any:
    """The value that `write_checked` wrote; None if the file is missing or damaged."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and record["sha256"] == fingerprint(record["value"]):
            return record["value"]
    except (OSError, ValueError, RecursionError, KeyError):
        pass
    return None


def discard(folder: Path) -> None:
    """Remove an artifact, its manifest first.

    An interrupted removal therefore leaves no folder that looks finished.
    """
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder)


def commit(partial: Path, final: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest of a finished partial folder and rename the folder to its final name.

    Args:
        partial: The folder that the stage wrote.
        final: The final folder. An existing artifact of that name is removed.
        manifest: JSON values. The hash and the size of every file are added, and a checksum.

    Returns:
        The manifest as it was written.
    """
    paths = payload_files(partial)
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # of a model: a minute per core and 50 GB
        sums = list(threads.map(hash_file, paths))
    hashes = {}
    for path, sha256 in zip(paths, sums, strict=True):
        name = path.relative_to(partial).as_posix()
        hashes[name] = {"sha256": sha256, "bytes": path.stat().st_size}
        fsync(path)
    for folder in sorted(path for path in partial.rglob("*") if path.is_dir()):
        fsync(folder)
    sealed = seal({**manifest, "files": hashes})
    text = json.dumps(sealed, indent=1, ensure_ascii=False)
    write_atomically(partial / MANIFEST, text + "\n")
    fsync(partial)
    if final.exists():
        discard(final)
    partial.rename(final)
    fsync(final.parent)
    return sealed


def fresh_partial(partial: Path, keep: bool) -> None:
    """Prepare the partial folder for writing.

    Args:
        partial: ``STAGE-FINGERPRINT.partial``, e.g. ``pack-1a2b3c4d.partial``.
        keep: True for stages that resume after an interruption; others start from an empty folder.
    """
    if partial.exists() and not keep:
        shutil.rmtree(partial)
    partial.mkdir(parents=True, exist_ok=True)
    # A run that was killed during commit may have left a manifest, complete or not. One that was
    # killed inside write_atomically left a temporary file. Neither is payload.
    for leftover in [partial / MANIFEST, *partial.glob(TEMPORARY_FILES)]:
        leftover.unlink(missing_ok=True)
    # A log that is opened through a link to nothing would be written under that other name.
    for path in partial.rglob("*"):
        if path.is_symlink() and not path.exists():
            path.unlink()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file of an artifact with sorted keys, so that equal values give equal bytes."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
