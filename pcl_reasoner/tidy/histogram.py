"""Histograms of what the filters measure, so that a person can choose the thresholds.

    {"edges": [1, 1.189207, 1.414214, …], "counts": [0, 12, 40, …], "limit": 20.0, "missing": 0,
     "quantiles": {"0.5": 2.1, "0.9": 3.4, "0.95": 4.0, "0.99": 11.2, "1.0": 740.3}}

Bin i is [edges[i], edges[i + 1]).
"""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np

_QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)
_LARGEST = 1e9
"""A larger value is counted as this: JSON has no infinity."""
_BINS_PER_DOUBLING = 4


def histogram(
    values: array[float], limit: float | None, first_edges: tuple[float, ...]
) -> dict[str, Any]:
    """Count values in bins; after the first edges, each edge is 2^(1/4) times the edge before it.

    Args:
        values: One value per response (array type ``d``); NaN where a response has none.
        limit: The threshold that is set; None: there is none.
        first_edges: Ascending; smaller values are counted in the first bin.
    """
    found = np.array(values)
    known = np.clip(found[~np.isnan(found)], first_edges[0], _LARGEST)
    edges = _edges(first_edges, float(known.max(initial=first_edges[0])))
    counts, _ = np.histogram(known, edges)
    quantiles = np.quantile(known, _QUANTILES).tolist() if len(known) else []
    return {
        "edges": edges,
        "counts": counts.tolist(),
        "limit": limit,
        "missing": len(found) - len(known),
        "quantiles": {str(q): value for q, value in zip(_QUANTILES, quantiles, strict=False)},
    }


def _edges(first: tuple[float, ...], largest: float) -> list[float]:
    """Continue the first edges until an edge is larger than the largest value."""
    edges = list(first)
    exponent = math.log2(edges[-1]) * _BINS_PER_DOUBLING
    while edges[-1] <= largest:
        exponent += 1
        edges.append(round(2 ** (exponent / _BINS_PER_DOUBLING), 6))
    return edges
