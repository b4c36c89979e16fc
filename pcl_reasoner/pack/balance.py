"""Distributes the rows of a global batch to data-parallel ranks so that attention costs are even.

    costs 9 1 8 2, two ranks; rank r takes the indices r, r + 2, … of the batch
    order [0, 1, 2, 3]   rank 0: 9 + 8, rank 1: 1 + 2
    ->    [0, 2, 1, 3]   rank 0: 9 + 1, rank 1: 8 + 2

All rows have the same number of tokens, but the cost of attention inside a segment grows with
the square of its length. A step takes as long as its slowest rank. Every step keeps its rows; only
their order within the step changes.
"""

import heapq
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def attention_cost(ends: Iterable[npt.ArrayLike]) -> Ints:
    """Return the attention cost of each row, [rows]: the sum of its squared segment lengths.

    Args:
        ends: ``actual_seq_len`` of each row: the cumulative ends of its segments.
    """
    squares = (np.diff(np.asarray(row, np.int64), prepend=0) ** 2 for row in ends)
    return np.fromiter((int(row.sum()) for row in squares), np.int64)


def balance(order: Ints, costs: Ints, ranks: int, global_batch_size: int) -> Ints:
    """Return ``order`` with each global batch reordered, if that makes its slowest rank faster.

    Args:
        order: [steps · global_batch_size] row indices; rank r takes every ``ranks``-th one,
            starting at r.
        costs: [rows] cost of each row, in any unit.
        ranks: Number of data-parallel ranks.
        global_batch_size: Rows per step, over all ranks.

    Raises:
        ValueError: ``global_batch_size`` is not a multiple of ``ranks``, or the number of rows is
            not a multiple of ``global_batch_size``.
    """
    found = order.copy()
    for batch in _batches(found, ranks, global_batch_size):
        dealt = _deal(batch, costs[batch], ranks)
        if _slowest(dealt, costs, ranks) < _slowest(batch, costs, ranks):
            batch[:] = dealt
    return found


def imbalance(order: Ints, costs: Ints, ranks: int, global_batch_size: int) -> float:
    """Return Σ (largest cost of a rank) / Σ (mean cost of the ranks), each summed over all steps.

    1.0 means that in every step all ranks have equal costs. Balancing speeds up attention by the
    ratio of the values before and after it. The arguments and errors are those of ``balance``.
    """
    batches = _batches(order, ranks, global_batch_size)
    slowest = sum(_slowest(batch, costs, ranks) for batch in batches)
    total = int(costs[order].sum())
    return slowest * ranks / total if total else 1.0


def _batches(order: Ints, ranks: int, global_batch_size: int) -> Ints:
    """Return ``order`` as a view of shape [steps, global_batch_size]."""
    if global_batch_size % ranks or len(order) % global_batch_size:
        raise ValueError(
            f"{len(order)} rows, global batches of {global_batch_size} and {ranks} ranks must "
            "divide without remainder: each rank has equally many rows of each batch"
        )
    return order.reshape(-1, global_batch_size)


def _slowest(batch: Ints, costs: Ints, ranks: int) -> int:
    return int(costs[batch].reshape(-1, ranks).sum(axis=0).max())


def _deal(batch: Ints, costs: Ints, ranks: int) -> Ints:
    """Return the batch reordered: each row, costliest first, goes to the rank of least cost.

    All ranks get equally many rows. Each rank's rows keep their original order, so
    that no micro-batch gets only long rows.
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
