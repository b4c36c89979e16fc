"""Problems that nearly repeat an earlier one: the first stays, with the pair's real score.

    problems   0 "Find x if 3x+5=20."   1 "Find x when 3x+5=20."   2 "A token starts …"
    found      {1: Duplicate(kept=0, cosine=0.9913)}

All pairs are compared, exactly, as products of blocks: memory is one block of cosines beside the
vectors. 400 000 problems are 3·10¹³ multiplications, minutes on a few cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcl_reasoner.contamination.text import strip_template

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pcl_reasoner.contamination.embed import Embedder

    Vectors = npt.NDArray[np.float32]

PLACES = 4
BLOCK = 4096
"""Problems a block: 64 MiB of cosines at a time."""


@dataclass(frozen=True)
class Duplicate:
    """A problem that is dropped for an earlier one: index of the distinct text kept, cosine."""

    kept: int
    cosine: float


def near_duplicates(
    texts: Sequence[str], clean: Sequence[int], embedder: Embedder, window_tokens: int, limit: float
) -> dict[int, Duplicate]:
    """Texts that nearly repeat an earlier clean one.

    Upstream dropped both of a pair and printed the match of a text with itself (defect 3).

    Args:
        texts: Distinct problems.
        clean: Indices of those that are in no benchmark, ascending.
        embedder: Embeds a text's first window.
        window_tokens: Tokens of it.
        limit: Cosine from which a problem repeats another.

    Returns:
        Index of a text -> the earlier text that it is closest to, and the cosine of the two.
    """
    stripped = [strip_template(texts[index]) for index in clean]
    window = min(window_tokens, embedder.max_tokens)
    vectors, _ = embedder.encode(stripped, window, first_only=True)
    return {
        clean[index]: Duplicate(clean[kept], cosine)
        for index, (kept, cosine) in first_kept(vectors, limit).items()
    }


def first_kept(vectors: Vectors, limit: float) -> dict[int, tuple[int, float]]:
    """Which vectors are dropped when each is compared with those kept before it.

    Args:
        vectors: Unit vectors, float32 [n, dimension].
        limit: Cosine from which one is dropped, compared after rounding to 4 places.

    Returns:
        Index -> (index of the closest kept before it, cosine).
    """
    import numpy as np

    dropped: dict[int, tuple[int, float]] = {}
    kept = np.zeros(len(vectors), bool)
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
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
    vectors: Vectors, kept: npt.NDArray[np.bool_], end: int, block: Vectors
) -> tuple[Vectors, npt.NDArray[np.int64]]:
    """The closest kept vector of all earlier blocks, for each of a block: cosine and index."""
    import numpy as np

    best = np.full(len(block), -1.0, np.float32)
    nearest = np.zeros(len(block), np.int64)
    for start in range(0, end, BLOCK):
        chosen = np.flatnonzero(kept[start : start + BLOCK]) + start
        if not len(chosen):
            continue
        cosines = block @ vectors[chosen].T
        place = cosines.argmax(axis=1)
        value = cosines[np.arange(len(block)), place]
        closer = value > best
        best[closer], nearest[closer] = value[closer], chosen[place[closer]]
    return best, nearest
