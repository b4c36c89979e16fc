"""Finds, fetches and fingerprints sources that are paths or hub repositories."""

from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact
from pcl_reasoner.core.damage import Damage, lost_files
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import expanded
from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.core.listing import EVERYTHING, files_below
from pcl_reasoner.core.schema import Source

COMPLETE = ".complete"
"""File of a fetched repository: every file with hash and size, and its own checksum."""


def files_of(root: Path, pattern: str | None = None) -> list[Path]:
    """The files of a path source, sorted; empty if there are none.

    Args:
        root: A file or folder.
        pattern: Glob of the files to use in a folder; all files when None.

    Raises:
        InputError: A file or folder cannot be read, or a part of a set is missing.
    """
    return files_below(root, [pattern or EVERYTHING])


def fingerprint_of(source: Source, hashes: FileHashes) -> str | None:
    """The fingerprint of a path source or a hub repository.

    A path is identified by its files' relative names and contents; a hub repository by its id,
    revision, kind and file pattern.

    Returns:
        The fingerprint; None if a path has no files.
    """
    if source.hub:
        return artifact.fingerprint([source.hub, source.revision, source.kind, source.files])
    return content_of(path_of(source), hashes, source.files)


def path_of(source: Source) -> Path:
    """The absolute path of a path source."""
    return expanded(str(source.path)).absolute()


def used_part(source: Source, runs: Path, digest: str) -> Path:
    """The path that a stage reads: that of the source, or a folder of links to the files it uses.

    A stage reads every file of a folder, so ``files`` needs a folder of its own.
    """
    root = path_of(source)
    if source.files is None or not root.is_dir():
        return root
    folder = runs / ".sources" / digest[:16]
    for file in files_of(root, source.files):
        link = folder / file.relative_to(root)
        if not (link.is_symlink() and link.readlink() == file):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(file)
    return folder


def content_of(root: Path, hashes: FileHashes, pattern: str | None = None) -> str | None:
    """The fingerprint of a file, or of a folder's matching files; None if there are no files."""
    found = files_of(root, pattern)
    base = root.parent if found == [root] else root
    identity = [[path.relative_to(base).as_posix(), hashes.sha256(path)] for path in found]
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
    """True if all files of a hub repository have been fetched and are there."""
    files = fetched_files(folder)
    return files is not None and not lost_files(folder, files)


def fetched_files(folder: Path) -> dict[str, dict[str, Any]] | None:
    """The files of a fetched repository with hash and size; None if it is not fetched."""
    files: dict[str, dict[str, Any]] | None = artifact.read_checked(folder / COMPLETE)
    return files


def refetch(folder: Path, damages: Iterable[Damage]) -> None:
    """Remove damaged files of a fetched repository, so that they are fetched again."""
    (folder / COMPLETE).unlink(missing_ok=True)
    for one in damages:
        one.file.unlink(missing_ok=True)


def fetch(name: str, source: Source, runs: Path, hashes: FileHashes) -> Path:
    """Download a hub repository; an interrupted download is resumed.

    Returns:
        The folder with the files.

    Raises:
        StageError: The hub does not answer, or has no such repository or no matching files, or a
            file is not what the hub has.
    """
    folder = hub_folder(source, runs)
    if fetched(folder):
        return folder
    import huggingface_hub

    try:
        # Asked first: without the hub, snapshot_download returns the folder as it is, incomplete.
        wanted = _files_on_hub(source)
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
    if not wanted:
        raise StageError(
            f"source {name}: {source.hub} at {source.revision} has no files "
            f"{source.files or ''}. Correct sources.{name}.files."
        )
    files = [folder / one for one in wanted]
    hashes.sha256_of_all(files)
    found = {
        file.relative_to(folder).as_posix(): {
            "sha256": hashes.sha256(file),
            "bytes": file.stat().st_size,
        }
        for file in files
        if file.is_file()
    }
    _compare_with_hub(name, folder, found, wanted)
    artifact.write_checked(folder / COMPLETE, found)
    return folder


def _files_on_hub(source: Source) -> dict[str, str | None]:
    """Return the files to fetch, hidden ones left out -> SHA-256; None for small files."""
    from huggingface_hub import HfApi

    info = HfApi().repo_info(
        str(source.hub), revision=source.revision, repo_type=source.kind, files_metadata=True
    )
    every = {one.rfilename: one.lfs.sha256 if one.lfs else None for one in info.siblings or ()}
    # The hub's client matches patterns in this way.
    names = (name for name in every if fnmatch(name, source.files or "*"))
    return {name: every[name] for name in names if "/." not in f"/{name}"}


def _compare_with_hub(
    name: str,
    folder: Path,
    found: dict[str, dict[str, Any]],
    wanted: dict[str, str | None],
) -> None:
    """Compare fetched files with those of the hub; remove what differs."""
    problems = [f"{folder / one}: missing" for one in wanted if one not in found]
    for one, sha256 in wanted.items():
        if sha256 and one in found and found[one]["sha256"] != sha256:
            (folder / one).unlink()
            problems.append(f"{folder / one}: its SHA-256 is not the hub's; it was removed")
    if problems:
        raise StageError(f"source {name}: {'; '.join(problems[:3])}. Run again to fetch it again.")
