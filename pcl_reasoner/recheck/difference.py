"""Differences between two lists of log-probs of the same tokens.

    theirs [[-0.41, -2.10], [-0.33]], ours [[-0.41, -2.30], [-0.33]]
    -> mean 0.067, p99 0.196, largest 0.2, tokens 3, by position [1, 2): 0.0, [2, 4): 0.2

A position is the index of a token in prompt and response together; the first token has no log-prob.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.recheck.limits import Limits

Values = Sequence[NDArray[np.float32]]
"""One array per segment: log π of every token but the first."""


@dataclass(frozen=True)
class Place:
    """The tokens at positions ``first`` <= position < ``end``."""

    first: int
    end: int
    tokens: int
    mean: float
    largest: float


@dataclass(frozen=True)
class Difference:
    """How far two passes differ, in nats.

    Args:
        tokens: Tokens that were compared.
        mean: Mean of the absolute differences.
        p99: Their 99th percentile.
        largest: The largest.
        by_position: The same by position; each range is twice as long as the one before.
    """

    tokens: int
    mean: float
    p99: float
    largest: float
    by_position: tuple[Place, ...]

    def within(self, limits: Limits) -> bool:
        """Return whether no limit is exceeded; a difference that is not a number exceeds all."""
        pairs = (
            (self.mean, limits.mean),
            (self.p99, limits.p99),
            (self.largest, limits.largest),
        )
        return all(found <= limit for found, limit in pairs)

    def as_json(self) -> dict[str, Any]:
        """Return the figures for proof.json."""
        return asdict(self)


def difference(theirs: Values, ours: Values) -> Difference:
    """Compare two passes over the same segments.

    Args:
        theirs: The server's log-probs.
        ours: The checkpoint's.
    """
    gaps = [np.abs(a.astype(np.float64) - b) for a, b in zip(theirs, ours, strict=True)]
    every = np.concatenate(gaps)
    positions = np.concatenate([np.arange(1, len(gap) + 1) for gap in gaps])
    places, first = [], 1
    while first <= positions.max():
        inside = every[(positions >= first) & (positions < 2 * first)]
        if len(inside):
            figures = (len(inside), float(inside.mean()), float(inside.max()))
            places.append(Place(first, 2 * first, *figures))
        first *= 2
    p99 = float(np.quantile(every, 0.99))
    return Difference(len(every), float(every.mean()), p99, float(every.max()), tuple(places))
