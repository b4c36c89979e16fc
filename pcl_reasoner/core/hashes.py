"""Remembers the SHA-256 of files, so that a file is hashed once and again only if it has changed.

    runs/.hashes.json
    {"sha256": "…", "value": {"/data/a.parquet": [inode, size, mtime_ns, ctime_ns, "sha256…"], …}}

A file counts as unchanged if its inode, size and both times are as remembered. A disk that changes
bytes by itself changes none of them: only a check that trusts nothing sees that.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact

Report = Callable[[int, int], None]
"""Called with the bytes that are hashed so far, and with all bytes to hash."""

_WRITTEN_SECONDS = 3600.0
"""After this time no other runner can still be writing the hashes."""


class FileHashes:
    """Hashes of files by path, inode, size, modification time and change time.

    Args:
        path: File in which the hashes are kept.
        trusted: False: what is kept from earlier processes does not count.
    """

    def __init__(self, path: Path, trusted: bool = True) -> None:
        self._path, self.trusted = path, trusted
        self._changed = False
        self._known: dict[str, list[Any]] = (artifact.read_checked(path) or {}) if trusted else {}

    def sha256(self, file: Path) -> str:
        """The file's hash; it is computed only if the file is new or has changed."""
        key, identity = str(file.resolve()), _identity(file)
        known = self._known.get(key)
        if known is None or known[:-1] != identity:
            return self._keep(key, identity, artifact.hash_file(file))
        return str(known[-1])

    def is_known(self, file: Path) -> bool:
        """Whether a hash of the file, as it is or as it was, is remembered."""
        return str(file.resolve()) in self._known

    def forget(self, file: Path) -> None:
        """Hash the file again at the next question."""
        self._known.pop(str(file.resolve()), None)

    def remember(self, file: Path, sha256: str) -> None:
        """Keep the hash of a file that was computed elsewhere, just now."""
        self._keep(str(file.resolve()), _identity(file), sha256)

    def sha256_of_all(
        self, files: Iterable[Path], report: Report = lambda done, total: None
    ) -> None:
        """Hash files on all cores, so that their hashes are remembered.

        Args:
            files: The files; one that does not exist is left out.
            report: Called after each file.
        """
        sizes = {file: file.stat().st_size for file in files if self._is_new(file)}
        done, total = 0, sum(sizes.values())
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for file, _ in zip(sizes, threads.map(self._readable, sizes), strict=True):
                done += sizes[file]
                report(done, total)

    def _is_new(self, file: Path) -> bool:
        known = self._known.get(str(file.resolve()))
        return file.is_file() and (known is None or known[:-1] != _identity(file))

    def _readable(self, file: Path) -> None:
        """Hash a file; who asks for the hash of one that cannot be read gets the error then."""
        with suppress(OSError):
            self.sha256(file)

    def _keep(self, key: str, identity: list[int], sha256: str) -> str:
        self._known[key] = [*identity, sha256]
        self._changed = True
        return sha256

    def save(self) -> None:
        """Write the hashes if there are new ones. A read-only disk is no error: this is a cache."""
        if not self._changed:
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            artifact.remove_unfinished(self._path, _WRITTEN_SECONDS)
            artifact.write_checked(self._path, self._known)


def _identity(file: Path) -> list[int]:
    status = file.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
