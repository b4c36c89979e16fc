"""Embeddings on disk by content, so that no text is embedded twice.

    <folder>/53aa51172d142c89/keys.bin      24 bytes a text: 16 of a hash, 8 of the windows' number
                              vectors.bin   float32, text by text

A second check, another threshold, another benchmark or a run that was cut off costs no embedding of
what is there. Vectors are written before their keys, and what has no key is cut off when the files
are opened: a torn write is never read. One process writes at a time; others read.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

KEY_BYTES, COUNT_BYTES = 16, 8
RECORD = KEY_BYTES + COUNT_BYTES
FLOAT_BYTES = 4


class EmbeddingCache:
    """Vectors of texts under one model.

    Args:
        folder: Of all models' caches; made if absent.
        model: Hash of the model's weights.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self._folder = folder / model[:16]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._places: dict[bytes, tuple[int, int]] = {}
        self._dimension = 0
        self._lock = (self._folder / "lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.writes = True
        except OSError:
            self.writes = False

    def open(self, dimension: int) -> None:
        """Read the keys; cut off what a killed process left half-written.

        Args:
            dimension: Of the model's vectors.
        """
        if self._dimension == dimension:
            return
        self._dimension = dimension
        vectors = self._file("vectors.bin").stat().st_size // (FLOAT_BYTES * dimension)
        keys, row, whole = self._file("keys.bin").read_bytes(), 0, 0
        for start in range(0, len(keys) - RECORD + 1, RECORD):
            count = int.from_bytes(keys[start + KEY_BYTES : start + RECORD], "big")
            if row + count > vectors:
                break
            self._places[keys[start : start + KEY_BYTES]] = (row, count)
            row, whole = row + count, start + RECORD
        self._rows = row
        if self.writes:
            os.truncate(self._file("keys.bin"), whole)
            os.truncate(self._file("vectors.bin"), row * FLOAT_BYTES * dimension)

    def _file(self, name: str) -> Path:
        path = self._folder / name
        path.touch()
        return path

    def key(self, text: str, window_tokens: int, first_only: bool) -> bytes:
        """What a text's vectors are kept under."""
        identity = f"{window_tokens}\x1f{first_only}\x1f{text}".encode("utf-8", "surrogatepass")
        return sha256(identity).digest()[:KEY_BYTES]

    def __contains__(self, key: bytes) -> bool:
        """True when a text's vectors are there."""
        return key in self._places

    def read(self, keys: Sequence[bytes]) -> list[Vectors]:
        """Vectors of texts that are there, float32 [windows, dimension] each."""
        import numpy as np

        shape = (self._rows, self._dimension)
        if not keys or not self._rows:
            return [np.empty((0, self._dimension), np.float32) for _ in keys]
        stored: Any = np.memmap(self._file("vectors.bin"), np.float32, "r", shape=shape)
        places = [self._places[key] for key in keys]
        return [np.array(stored[row : row + count]) for row, count in places]

    def write(self, keys: Sequence[bytes], vectors: Sequence[Vectors]) -> None:
        """Append texts that are not there yet; nothing when another process writes."""
        if not self.writes:
            return
        with self._file("vectors.bin").open("ab") as handle:
            for own in vectors:
                handle.write(own.astype("<f4").tobytes())
            handle.flush()
            os.fsync(handle.fileno())
        with self._file("keys.bin").open("ab") as handle:
            for key, own in zip(keys, vectors, strict=True):
                handle.write(key + len(own).to_bytes(COUNT_BYTES, "big"))
                self._places[key] = (self._rows, len(own))
                self._rows += len(own)
