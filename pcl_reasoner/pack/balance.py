"""Distributes the rows of a global batch to data-parallel ranks so that attention costs are even.

    costs 9 1 8 2, two ranks; rank r takes the indices r, r + 2, … of the batch
    order [0, 1, 2, 3]   rank 0: 9 + 8, rank 1: 1 + 2
    ->    [0, 2, 1, 3]   rank 0: 9 + 1, rank 1: 8 + 2

All rows have the same number of tokens, but the cost of attention inside a segment is the square
of its length. A step takes as long as its slowest rank. Every step keeps its rows; only their order
within the step changes.
"""

import heapq
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def attention_cost(ends: Iterable[npt.ArrayLike]) -> Ints:
    """Compute the sum of squared segment lengths of each row.

    Args:
        ends: ``actual_seq_len`` of each row: the cumulative ends of its segments.
    """
    squares = (np.diff(np.asarray(row, np.int64), prepend=0) ** 2 for row in ends)
    return np.fromiter((int(row.sum()) for row in squares), np.int64)


def balance(order: Ints, costs: Ints, ranks: int, global_batch_size: int) -> Ints:
    """Reorder each global batch; the slowest rank of a batch never gets slower.

    Args:
        order: [steps · global_batch_size] row indices; rank r takes every ``ranks``-th one,
            starting at r.
        costs: [rows] cost of each row, in any unit.
        ranks: Number of data-parallel ranks.
        global_batch_size: Rows per step, over all ranks.

    Raises:
        ValueError: The ranks do not divide a batch evenly, or the batches the order.
    """
    found = order.copy()
    for batch in _batches(found, ranks, global_batch_size):
        dealt = _deal(batch, costs[batch], ranks)
        if _slowest(dealt, costs, ranks) < _slowest(batch, costs, ranks):
            batch[:] = dealt
    return found


def imbalance(order: Ints, costs: Ints, ranks: int, global_batch_size: int) -> float:
    """Return the cost of the slowest rank, summed over all steps, relative to the mean rank's cost.

    Args and raises as in balance. 1.0 is even. The gain of balancing is the ratio of the values
    before and after it.
    """
    batches = _batches(order, ranks, global_batch_size)
    slowest = sum(_slowest(batch, costs, ranks) for batch in batches)
    total = int(costs[order].sum())
    return slowest * ranks / total if total else 1.0


def _batches(order: Ints, ranks: int, global_batch_size: int) -> Ints:
    """Return the order as a view, [steps, global_batch_size]."""
    if global_batch_size % ranks or len(order) % global_batch_size:
        raise ValueError(
            f"{len(order)} rows, global batches of {global_batch_size} and {ranks} ranks must "
            "divide without remainder: each rank has equally many rows of each batch"
        )
    return order.reshape(-1, global_batch_size)


def _slowest(batch: Ints, costs: Ints, ranks: int) -> int:
    return int(costs[batch].reshape(-1, ranks).sum(axis=0).max())


def _deal(batch: Ints, costs: Ints, ranks: int) -> Ints:
    """Give each row, the costliest first, to the rank with the least cost that takes more rows.

    Each rank's rows keep their original order, so that no micro-batch gets only long rows.
    """
    rows_per_rank = len(batch) // ranks
    taken: list[list[int]] = [[] for _ in range(ranks)]
    least = [(0, rank) for rank in range(ranks)]
    for index in np.argsort(-costs, kind="stable").tolist():
        cost, rank = heapq.heappop(least)
        taken[rank].append(index)
        if len(taken[rank]) < rows_per_rank:
            heapq.heappush(least, (cost + int(costs[index]), rank))
    by_rank = np.array([sorted(rows) for rows in taken])
    dealt: Ints = batch[by_rank.T.reshape(-1)]
    return dealt
