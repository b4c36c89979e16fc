"""The hash that identifies a model: its config.json and its weights.

weights_hash(Path("runs/v1_sft/export-1a2b3c4d")) -> "9f86d081884c7d65…", 64 hexadecimal digits
"""

from functools import lru_cache
from pathlib import Path

from pcl_reasoner.core.artifact import fingerprint, hash_file
from pcl_reasoner.weights.stream import weight_files

_Stamps = tuple[tuple[str, int, int], ...]


def weights_hash(folder: Path) -> str:
    """Return the SHA-256 over the hashes of a folder's config.json and safetensors files.

    A process reads the files once, and again only if a size or a time of change differs.

    Raises:
        StageError: A file is missing or incomplete.
    """
    files = [folder / "config.json", *weight_files(folder)]
    stats = [(path, path.stat()) for path in files]
    return _hash(tuple((str(path), one.st_size, one.st_mtime_ns) for path, one in stats))


@lru_cache(maxsize=16)
def _hash(stamps: _Stamps) -> str:
    return fingerprint({Path(path).name: hash_file(Path(path)) for path, _, _ in stamps})
