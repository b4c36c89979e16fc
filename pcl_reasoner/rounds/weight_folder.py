"""Compares the weights of two Hugging Face folders, mostly without reading them."""

from pathlib import Path

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.weights.stream import StoredTensor, read_files, weight_files

Version = list[tuple[str, int, int]]
"""(name, size in bytes, time of the last change in ns) of every file with weights."""


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a folder's weights by name; only the files' headers are read.

    Raises:
        StageError: A file is missing or incomplete.
    """
    return {name: one.shape for name, one in read_files(weight_files(folder)).items()}


def version_of(folder: Path) -> Version:
    """Return what changes if a folder's files with weights are written again."""
    stats = [(path.name, path.stat()) for path in weight_files(folder)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def differ(first: Path, second: Path) -> bool:
    """Return whether two folders have different weights; read up to the first difference.

    If one of the folders was deleted, or has another data type, the result is False.
    """
    try:
        one, other = read_files(weight_files(first)), read_files(weight_files(second))
        pairs = [(one[name], other[name]) for name in one.keys() & other.keys()]
        if any(before.dtype != after.dtype for before, after in pairs):
            return False
        return len(pairs) < max(len(one), len(other)) or any(_differ(*pair) for pair in pairs)
    except (FileNotFoundError, StageError):
        return False


def _differ(one: StoredTensor, other: StoredTensor) -> bool:
    pairs = zip(one.chunks(), other.chunks(), strict=False)
    return one.shape != other.shape or any(bytes(a) != bytes(b) for a, b in pairs)
