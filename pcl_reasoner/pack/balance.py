"""The rows of a global batch dealt to data-parallel ranks so that attention costs them alike.

    costs 9 1 8 2, two ranks; rank r takes places r, r + 2, … of the batch
    order [0, 1, 2, 3]   rank 0: 9 + 8, rank 1: 1 + 2
    ->    [0, 2, 1, 3]   rank 0: 9 + 1, rank 1: 8 + 2

Rows have equal numbers of tokens, but attention inside a segment costs the square of its length. A
step takes as long as its slowest rank. Which rows are in which step does not change.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def attention_cost(ends: Iterable[npt.ArrayLike]) -> Ints:
    """Sum of squared segment lengths of each row.

    Args:
        ends: ``actual_seq_len`` of each row: cumulative ends of its segments.
    """
    squares = (np.diff(np.asarray(row, np.int64), prepend=0) ** 2 for row in ends)
    return np.fromiter((int(row.sum()) for row in squares), np.int64)


def balance(order: Ints, costs: Ints, ranks: int, global_batch_size: int) -> Ints:
    """Reorder each global batch; no batch's slowest rank gets slower.

    Args:
        order: [steps · global_batch_size] row indices; rank r takes every ``ranks``-th, from r on.
        costs: [rows] cost of each row, any unit.
        ranks: Data-parallel ranks.
        global_batch_size: Rows a step, over all ranks.

    Raises:
        ValueError: A batch does not divide into ranks, or the order into batches.
    """
    found = order.copy()
    for batch in _batches(found, ranks, global_batch_size):
        dealt = _deal(batch, costs[batch], ranks)
        if _slowest(dealt, costs, ranks) < _slowest(batch, costs, ranks):
            batch[:] = dealt
    return found


def imbalance(order: Ints, costs: Ints, ranks: int, global_batch_size: int) -> float:
    """The slowest rank's cost, summed over all steps, as a multiple of the mean rank's.

    Args and raises as balance. 1.0 is even; what balancing gains is one figure over the other.
    """
    batches = _batches(order, ranks, global_batch_size)
    slowest = sum(_slowest(batch, costs, ranks) for batch in batches)
    total = int(costs[order].sum())
    return slowest * ranks / total if total else 1.0


def _batches(order: Ints, ranks: int, global_batch_size: int) -> Ints:
    """[steps, global_batch_size], a view of the order."""
    if global_batch_size % ranks or len(order) % global_batch_size:
        raise ValueError(
            f"{len(order)} rows, global batches of {global_batch_size} and {ranks} ranks must "
            "divide without remainder: each rank has equally many rows of each batch"
        )
    return order.reshape(-1, global_batch_size)


def _slowest(batch: Ints, costs: Ints, ranks: int) -> int:
    return int(costs[batch].reshape(-1, ranks).sum(axis=0).max())


def _deal(batch: Ints, costs: Ints, ranks: int) -> Ints:
    """Longest first to the rank with the least cost so far that has a place left.

    Each rank's rows keep the order that they had, so that no micro-batch gets only long ones.
    """
    places = len(batch) // ranks
    taken: list[list[int]] = [[] for _ in range(ranks)]
    least = [(0, rank) for rank in range(ranks)]
    for place in np.argsort(-costs, kind="stable").tolist():
        cost, rank = heapq.heappop(least)
        taken[rank].append(place)
        if len(taken[rank]) < places:
            heapq.heappush(least, (cost + int(costs[place]), rank))
    by_rank = np.array([sorted(rows) for rows in taken])
    dealt: Ints = batch[by_rank.T.reshape(-1)]
    return dealt
