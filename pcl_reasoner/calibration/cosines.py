"""Counts of cosines by value, and the cosine that only a given share of them reaches.

counts of 1 770 pairs     0.6700 once, 0.6574 twice, 0.6480 once, … -0.1312 once
limit(0.001)              0.6575: 1 pair of the 1.77 that may reach it does
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pcl_reasoner.contamination.fingerprints import Fingerprint
from pcl_reasoner.contamination.scores import DECIMALS
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.embedding.encoders import Vectors

Table = npt.NDArray[np.float64]
STEPS = 10**DECIMALS
"""Cosines are rounded to this number of steps between 0 and 1, as in the check."""


class CosineCounts:
    """How often each cosine, rounded to 4 decimal places, occurs; its size is fixed."""

    def __init__(self) -> None:
        self._counts = np.zeros(2 * STEPS + 1, np.int64)

    def add(self, cosines: Table) -> None:
        """Count cosines, of any shape."""
        steps = np.rint(cosines.ravel() * STEPS).astype(np.int64).clip(-STEPS, STEPS)
        self._counts += np.bincount(steps + STEPS, minlength=2 * STEPS + 1)

    @property
    def total(self) -> int:
        """Number of cosines."""
        return int(self._counts.sum())

    def reaching(self, cosine: float) -> int:
        """Number of cosines that are at least this."""
        return int(self._counts[round(cosine * STEPS) + STEPS :].sum())

    def limit(self, share: float) -> float:
        """The smallest positive cosine that at most this share of the cosines reach.

        Raises:
            StageError: More than this share of the cosines is 1.
        """
        reaching = np.cumsum(self._counts[::-1])[::-1]
        few = np.flatnonzero(reaching[STEPS + 1 :] <= share * self.total)
        if not len(few):
            raise StageError(
                f"contamination calibrate: {reaching[-1]} of {self.total} cosines with other "
                f"problems are 1, more than the share {share:g} that may reach a threshold. The "
                "background repeats the questions, or the model cannot tell problems apart."
            )
        return float(few[0] + 1) / STEPS

    def quantile(self, rank: float) -> float:
        """The smallest counted cosine with at least this share of the cosines up to it."""
        up_to = np.cumsum(self._counts)
        place = int(np.searchsorted(up_to, max(1, math.ceil(rank * self.total))))
        return (place - STEPS) / STEPS


class QuestionCosines:
    """Cosines of texts with all questions, as the check computes them.

    Args:
        questions: Fingerprints with vectors.
    """

    def __init__(self, questions: Sequence[Fingerprint]) -> None:
        vectors = [question.vectors for question in questions if question.vectors is not None]
        halves = [question.halves for question in questions if question.halves is not None]
        self._vectors, self._halves = np.concatenate(vectors), np.concatenate(halves)
        self._firsts = np.cumsum([0, *(len(windows) for windows in vectors[:-1])])

    def of(self, texts: Sequence[Vectors]) -> tuple[Table, Table]:
        """Each text's best cosine with each question, and with a half of each question.

        Args:
            texts: Vectors of each text, float32 [windows, dimension].

        Returns:
            Two tables of shape (texts, questions), rounded like the check's cosines.
        """
        windows = np.concatenate(texts)
        starts = np.cumsum([0, *(len(one) for one in texts[:-1])])
        whole = np.maximum.reduceat(windows @ self._vectors.T, self._firsts, axis=1)
        half = (windows @ self._halves.T).reshape(len(windows), -1, 2).max(axis=2)
        best = (np.maximum.reduceat(table, starts, axis=0) for table in (whole, half))
        whole_best, half_best = (table.astype(np.float64).round(DECIMALS) for table in best)
        return whole_best, half_best
