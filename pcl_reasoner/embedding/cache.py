"""Stores embeddings on disk under a hash of the text, so that no text is embedded twice.

    <folder>/53aa51172d142c89/keys.bin      24 bytes per text: 16 of hash, 8 of window count
                              vectors.bin   float32, text by text

A cached text is not embedded again: not for another threshold, for another benchmark or after a
restart. Vectors are written before their keys, and vectors without a key are removed when the
files are opened, so half-written vectors are never read. One process at a time locks the
folder. A process that finds it locked, or that is given no folder, uses a temporary folder.
"""

import fcntl
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pcl_reasoner.embedding.encoders import Vectors

KEY_BYTES, COUNT_BYTES = 16, 8
RECORD = KEY_BYTES + COUNT_BYTES
FLOAT_BYTES = 4


class EmbeddingCache:
    """A cache of the vectors that one model computes for texts.

    Args:
        folder: Folder with the caches of all models, created if absent; None: a temporary folder.
        model: Hash of the model's weights; its first 16 digits name the subfolder.
        dimension: Width of the model's vectors.
    """

    def __init__(self, folder: Path | None, model: str, dimension: int) -> None:
        self._resources = ExitStack()
        if folder is None or not self._lock(folder / model[:16]):
            temporary = tempfile.TemporaryDirectory(prefix="pclr-ms-embeddings-")
            self._folder = Path(self._resources.enter_context(temporary))
        self._dimension = dimension
        self._position_of: dict[bytes, tuple[int, int]] = {}
        self._rows = 0
        self._open()

    def _lock(self, folder: Path) -> bool:
        """Lock a folder and use it; return False if another process has locked it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        handle = self._resources.enter_context((folder / "lock").open("a"))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            return False
        return True

    def close(self) -> None:
        """Release the lock on the folder, or remove the temporary folder."""
        self._resources.close()

    def _open(self) -> None:
        """Read the keys, and cut off half-written keys and vectors that a killed process left."""
        row_bytes = FLOAT_BYTES * self._dimension
        vectors = self._file("vectors.bin").stat().st_size // row_bytes
        keys, row, complete = self._file("keys.bin").read_bytes(), 0, 0
        for start in range(0, len(keys) - RECORD + 1, RECORD):
            count = int.from_bytes(keys[start + KEY_BYTES : start + RECORD], "big")
            if row + count > vectors:
                break
            self._position_of[keys[start : start + KEY_BYTES]] = (row, count)
            row, complete = row + count, start + RECORD
        self._rows = row
        os.truncate(self._file("keys.bin"), complete)
        os.truncate(self._file("vectors.bin"), row * row_bytes)

    def _file(self, name: str) -> Path:
        path = self._folder / name
        path.touch()
        return path

    def key(self, text: str, window_tokens: int, first_only: bool, fast: bool = False) -> bytes:
        """The cache key of a text's vectors; the faster encoder's vectors have another key."""
        kind = f"{'fast ' if fast else ''}{window_tokens}\x1f{first_only}"
        identity = f"{kind}\x1f{text}".encode("utf-8", "surrogatepass")
        return sha256(identity).digest()[:KEY_BYTES]

    def __contains__(self, key: bytes) -> bool:
        """True if a text's vectors are in the cache."""
        return key in self._position_of

    def read(self, keys: Sequence[bytes]) -> list[Vectors]:
        """Vectors of cached texts, float32 [windows, dimension] per text."""
        if not keys:
            return []
        stored = self.all()
        positions = [self._position_of[key] for key in keys]
        return [np.array(stored[row : row + count]) for row, count in positions]

    def all(self) -> Vectors:
        """All vectors, float32 [rows, dimension], memory-mapped: read from disk when accessed."""
        shape = (self._rows, self._dimension)
        if not self._rows:
            return np.empty(shape, np.float32)
        return np.memmap(self._file("vectors.bin"), np.float32, "r", shape=shape)

    def first_rows(self, keys: Sequence[bytes]) -> npt.NDArray[np.int64]:
        """For each cached text, the row of its first window in the array ``all()``."""
        return np.array([self._position_of[key][0] for key in keys], np.int64)

    def write(self, keys: Sequence[bytes], vectors: Sequence[Vectors]) -> None:
        """Append the vectors of texts that are not in the cache yet."""
        with self._file("vectors.bin").open("ab") as handle:
            for windows in vectors:
                handle.write(windows.astype("<f4").tobytes())
            handle.flush()
            os.fsync(handle.fileno())
        with self._file("keys.bin").open("ab") as handle:
            for key, windows in zip(keys, vectors, strict=True):
                handle.write(key + len(windows).to_bytes(COUNT_BYTES, "big"))
                self._position_of[key] = (self._rows, len(windows))
                self._rows += len(windows)
