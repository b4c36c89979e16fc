"""Finds problems that nearly repeat an earlier one: the first is kept, the later ones are dropped.

    problems   0 "Find x if 3x+5=20."   1 "Find x when 3x+5=20."   2 "A token starts …"
    neighbours [0, 1]: these problems have a near neighbour; no other can be in a pair
    found      {1: (0, 0.9913)}: problem 1 repeats problem 0, with the cosine of this pair

The exact search compares all pairs, one pair of blocks at a time. It reads vectors from disk; only
two blocks and their cosines are in memory. The approximate search compares a vector only with the
vectors in the nearest cells of a faiss index.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcl_reasoner.core.errors import require
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.embedding.encoders import Vectors

DECIMALS = 4
"""Decimal places to which cosines are rounded, as in the check."""
BLOCK = 4096
"""Problems per block; the cosines of all pairs from two blocks take 64 MiB."""
CELL = 400
"""Mean number of vectors per cell of the faiss index; up to 64 per cell are used to train it."""
PROBED = 16
"""Cells searched per vector."""


@dataclass(frozen=True)
class Duplicate:
    """Why a problem is dropped: the index of an earlier, kept text, and their cosine."""

    kept: int
    cosine: float


@dataclass(frozen=True)
class VectorRows:
    """Unit vectors of problems, as rows of a larger array that is not copied.

    Args:
        stored: float32 [rows, dimension], e.g. mapped from a file.
        index: For each problem, its row in ``stored``, int64 [problems].
    """

    stored: Vectors
    index: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Number of problems."""
        return len(self.index)

    def take(self, which: Any) -> Vectors:
        """Vectors of some problems, given as a slice or as an array of indices."""
        return self.stored[self.index[which]]

    def blocks(self) -> Iterator[tuple[int, Vectors]]:
        """Yield the vectors in blocks, each with the index of its first problem."""
        for start in range(0, len(self), BLOCK):
            yield start, self.take(slice(start, start + BLOCK))


def neighbours(vectors: VectorRows, limit: float, search: str, progress: Progress) -> list[int]:
    """Return the ascending indices of the problems that are near any other problem.

    Args:
        vectors: The problems' vectors.
        limit: Two problems are near if their cosine is at least this.
        search: ``exact``: all pairs. ``approximate``: only near cells, which may miss a pair.
        progress: Receives the number of pairs (exact) or problems (approximate) compared.
    """
    find = _nearest_cosine if search == "exact" else _nearest_in_cells
    return (find(vectors, progress) >= limit).nonzero()[0].tolist()


def _nearest_cosine(vectors: VectorRows, progress: Progress) -> Vectors:
    """The cosine of each vector with its nearest other vector."""
    nearest = np.full(len(vectors), -1.0, np.float32)
    for start, block in vectors.blocks():
        rows = slice(start, start + BLOCK)
        inside = block @ block.T
        np.fill_diagonal(inside, -1.0)
        nearest[rows] = np.maximum(nearest[rows], inside.max(axis=1))
        for before in range(0, start, BLOCK):
            others = slice(before, before + BLOCK)
            cosines = block @ vectors.take(others).T
            nearest[rows] = np.maximum(nearest[rows], cosines.max(axis=1))
            nearest[others] = np.maximum(nearest[others], cosines.max(axis=0))
        done = min(start + BLOCK, len(vectors))
        progress.update(done**2, len(vectors) ** 2, "pairs", "near-duplicates")
    return nearest


def _nearest_in_cells(vectors: VectorRows, progress: Progress) -> Vectors:
    """Cosine of each vector with the nearest other vector in its nearest cells."""
    faiss = require("faiss", "faiss")
    dimension, cells = vectors.stored.shape[1], max(1, len(vectors) // CELL)
    quantizer = faiss.IndexFlatIP(dimension)
    kind = faiss.ScalarQuantizer.QT_fp16
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, dimension, cells, kind, faiss.METRIC_INNER_PRODUCT
    )
    sample = np.linspace(0, len(vectors) - 1, min(len(vectors), 64 * cells)).astype(np.int64)
    index.train(vectors.take(sample))
    for _, block in vectors.blocks():
        index.add(block)
    index.nprobe = PROBED
    nearest = np.full(len(vectors), -1.0, np.float32)
    for start in range(0, len(vectors), BLOCK):
        rows = slice(start, start + BLOCK)
        cosines, found = index.search(vectors.take(rows), 2)
        itself = np.arange(start, start + len(cosines))[:, None]
        nearest[rows] = np.where(found == itself, -1.0, cosines).max(axis=1)
        progress.update(start + len(cosines), len(vectors), "problems", "near-duplicates")
    return nearest


def first_kept(vectors: VectorRows, limit: float) -> dict[int, tuple[int, float]]:
    """Compare each vector with the kept vectors before it; drop the vector if one is too close.

    Args:
        vectors: The problems' vectors.
        limit: A vector is dropped if its cosine, rounded to 4 decimal places, is at least this.

    Returns:
        Index of a dropped vector -> (index of the closest earlier kept vector, cosine).
    """
    dropped: dict[int, tuple[int, float]] = {}
    kept = np.zeros(len(vectors), bool)
    for start, block in vectors.blocks():
        best, nearest = _closest_before(vectors, kept, start, block)
        inside = np.tril(block @ block.T, -1)
        for row in range(len(block)):
            # Within the block only kept rows count, and they are decided row by row.
            candidates = np.where(kept[start : start + row], inside[row, :row], -1.0)
            if row and candidates.max() > best[row]:
                best[row], nearest[row] = candidates.max(), start + int(candidates.argmax())
            cosine = round(float(best[row]), DECIMALS)
            kept[start + row] = cosine < limit
            if cosine >= limit:
                dropped[start + row] = (int(nearest[row]), cosine)
    return dropped


def _closest_before(
    vectors: VectorRows, kept: npt.NDArray[np.bool_], end: int, block: Vectors
) -> tuple[Vectors, npt.NDArray[np.int64]]:
    """Cosine and index of the closest kept vector in earlier blocks, for each row of a block."""
    best = np.full(len(block), -1.0, np.float32)
    nearest = np.zeros(len(block), np.int64)
    for start in range(0, end, BLOCK):
        chosen = np.flatnonzero(kept[start : start + BLOCK]) + start
        if not len(chosen):
            continue
        cosines = block @ vectors.take(chosen).T
        index, value = cosines.argmax(axis=1), cosines.max(axis=1)
        closer = value > best
        best[closer], nearest[closer] = value[closer], chosen[index[closer]]
    return best, nearest
