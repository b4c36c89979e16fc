"""Problems that nearly repeat an earlier one: the first stays, with the pair's real score.

    problems   0 "Find x if 3x+5=20."   1 "Find x when 3x+5=20."   2 "A token starts …"
    neighbours [0, 1]: they have a neighbour, and are all that can repeat or be repeated
    found      {1: (0, 0.9913)}: problem 1 repeats problem 0

Exactly: all pairs are compared, as products of blocks; memory is two blocks and their cosines,
vectors are read from the disk. Approximately: only vectors of the same cells of a faiss index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import require
from pcl_reasoner.core.stage import Progress

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

PLACES = 4
BLOCK = 4096
"""Problems a block: 64 MiB of cosines at a time."""
CELL = 400
"""Vectors a cell of the approximate index, and training vectors a cell there are at most 64 of."""
PROBED = 16
"""Cells that are looked into for a vector."""


@dataclass(frozen=True)
class Duplicate:
    """A problem that is dropped for an earlier one: index of the distinct text kept, cosine."""

    kept: int
    cosine: float


@dataclass(frozen=True)
class Rows:
    """Unit vectors of problems, left where they are stored.

    Args:
        stored: float32 [rows, dimension], e.g. mapped from a file.
        place: Row of ``stored`` of each problem, int64 [problems].
    """

    stored: Vectors
    place: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Problems."""
        return len(self.place)

    def take(self, which: Any) -> Vectors:
        """Vectors of some problems, given by a slice or by their numbers."""
        vectors: Vectors = self.stored[self.place[which]]
        return vectors


def neighbours(vectors: Rows, limit: float, search: str, progress: Progress) -> list[int]:
    """Problems that have another one near them, earlier or later, ascending.

    Args:
        vectors: Of problems.
        limit: Cosine from which another one is near.
        search: exact, or approximate: by cells, which misses a pair now and then.
        progress: Told of pairs, or of problems, that were compared.
    """
    find = _nearest_cosine if search == "exact" else _nearest_in_cells
    near: list[int] = (find(vectors, progress) >= limit).nonzero()[0].tolist()
    return near


def _nearest_cosine(vectors: Rows, progress: Progress) -> Vectors:
    """The cosine of each with the nearest other one."""
    import numpy as np

    nearest = np.full(len(vectors), -1.0, np.float32)
    for start in range(0, len(vectors), BLOCK):
        rows = slice(start, start + BLOCK)
        block = vectors.take(rows)
        own = block @ block.T
        np.fill_diagonal(own, -1.0)
        nearest[rows] = np.maximum(nearest[rows], own.max(axis=1))
        for before in range(0, start, BLOCK):
            others = slice(before, before + BLOCK)
            cosines = block @ vectors.take(others).T
            nearest[rows] = np.maximum(nearest[rows], cosines.max(axis=1))
            nearest[others] = np.maximum(nearest[others], cosines.max(axis=0))
        done = min(start + BLOCK, len(vectors))
        progress.update(done**2, len(vectors) ** 2, "pairs", "near-duplicates")
    return nearest


def _nearest_in_cells(vectors: Rows, progress: Progress) -> Vectors:
    """As ``_nearest_cosine``, but among the vectors of the nearest cells only."""
    import numpy as np

    faiss = require("faiss", "faiss")
    dimension, cells = vectors.stored.shape[1], max(1, len(vectors) // CELL)
    quantizer = faiss.IndexFlatIP(dimension)
    kind = faiss.ScalarQuantizer.QT_fp16
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, dimension, cells, kind, faiss.METRIC_INNER_PRODUCT
    )
    sample = np.linspace(0, len(vectors) - 1, min(len(vectors), 64 * cells)).astype(np.int64)
    index.train(vectors.take(sample))
    for start in range(0, len(vectors), BLOCK):
        index.add(vectors.take(slice(start, start + BLOCK)))
    index.nprobe = PROBED
    nearest = np.full(len(vectors), -1.0, np.float32)
    for start in range(0, len(vectors), BLOCK):
        rows = slice(start, start + BLOCK)
        cosines, found = index.search(vectors.take(rows), 2)
        own = np.arange(start, start + len(cosines))[:, None]
        nearest[rows] = np.where(found == own, -1.0, cosines).max(axis=1)
        progress.update(start + len(cosines), len(vectors), "problems", "near-duplicates")
    return nearest


def first_kept(vectors: Rows, limit: float) -> dict[int, tuple[int, float]]:
    """Which vectors are dropped when each is compared with those kept before it.

    Args:
        vectors: Of problems.
        limit: Cosine from which one is dropped, compared after rounding to 4 places.

    Returns:
        Index -> (index of the closest kept before it, cosine).
    """
    import numpy as np

    dropped: dict[int, tuple[int, float]] = {}
    kept = np.zeros(len(vectors), bool)
    for start in range(0, len(vectors), BLOCK):
        block = vectors.take(slice(start, start + BLOCK))
        best, nearest = _closest_before(vectors, kept, start, block)
        inside = np.tril(block @ block.T, -1)
        for row in range(len(block)):
            # Of the same block only what was kept counts, which is known row by row.
            candidates = np.where(kept[start : start + row], inside[row, :row], -1.0)
            if row and candidates.max() > best[row]:
                best[row], nearest[row] = candidates.max(), start + int(candidates.argmax())
            cosine = round(float(best[row]), PLACES)
            if cosine >= limit:
                dropped[start + row] = (int(nearest[row]), cosine)
            else:
                kept[start + row] = True
    return dropped


def _closest_before(
    vectors: Rows, kept: npt.NDArray[np.bool_], end: int, block: Vectors
) -> tuple[Vectors, npt.NDArray[np.int64]]:
    """The closest kept vector of all earlier blocks, for each of a block: cosine and index."""
    import numpy as np

    best = np.full(len(block), -1.0, np.float32)
    nearest = np.zeros(len(block), np.int64)
    for start in range(0, end, BLOCK):
        chosen = np.flatnonzero(kept[start : start + BLOCK]) + start
        if not len(chosen):
            continue
        cosines = block @ vectors.take(chosen).T
        place = cosines.argmax(axis=1)
        value = cosines[np.arange(len(block)), place]
        closer = value > best
        best[closer], nearest[closer] = value[closer], chosen[place[closer]]
    return best, nearest
