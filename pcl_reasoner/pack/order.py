"""Determines the rows of each step, and the weight of each segment in its global batch.

    rows = 5, epochs = 2, global batch = 2, seed = 7
    order   = [2, 0, 4, 1, 3 | 3, 0, 2, 1, 4]   one shuffle per epoch, then joined
    steps   = [2, 0] [4, 1] [3, 3] [0, 2] [1, 4]
    rank r of N takes every N-th row of the order, starting at r

A rank, a micro-batch or a pipeline stage sees only a part of the global batch, so it cannot compute
a loss that is a mean over that batch. Therefore the order is fixed before training, and the loader
gives every segment its weight: 1 / number of segments with a trained token in its global batch.

Within a step the rows may be distributed to the ranks by their attention costs (balanced_order).
The loss of the step, a sum over its rows, does not change.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcl_reasoner.pack.balance import attention_cost, balance


@dataclass(frozen=True)
class DataOrder:
    """The rows of all steps, in the order of the steps.

    Args:
        rows: Row indices, int64 [steps · global_batch_size].
        global_batch_size: Rows per step, over all ranks.
        left_over: Number of rows without a step: those of an incomplete step or after max_steps.
    """

    rows: NDArray[np.int64]
    global_batch_size: int
    left_over: int

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return len(self.rows) // self.global_batch_size


def data_order(
    row_count: int, epochs: int, global_batch_size: int, seed: int, max_steps: int | None = None
) -> DataOrder:
    """Return the order of all rows of all epochs.

    Args:
        row_count: Packed rows.
        epochs: Passes over them.
        global_batch_size: Rows per step, over all ranks.
        seed: Seed of the shuffles; each epoch has its own random stream.
        max_steps: Stop after this many steps; None for all steps.
    """
    epochs_of_rows = [
        np.random.default_rng([seed, epoch]).permutation(row_count) for epoch in range(epochs)
    ]
    rows = np.concatenate(epochs_of_rows).astype(np.int64)
    steps = len(rows) // global_batch_size
    if max_steps is not None:
        steps = min(steps, max_steps)
    used = steps * global_batch_size
    return DataOrder(rows[:used], global_batch_size, len(rows) - used)


def balanced_order(
    order: DataOrder, ends: Iterable[ArrayLike], ranks: int, micro_batches: int = 1
) -> DataOrder:
    """Return an order in which the attention costs of the ranks are even within each step.

    Each step is reordered by itself, so a longer run begins with the same steps as a shorter run.

    Args:
        order: The order; rank r loads every ``ranks``-th row of it, starting at r.
        ends: ``actual_seq_len`` of every packed row.
        ranks: Number of data-parallel ranks.
        micro_batches: Micro-batches per step of a rank.
    """
    size = order.global_batch_size
    places = _loaded_places(size, ranks, micro_batches)
    found = np.empty_like(order.rows).reshape(-1, size)
    computed = computed_rows(order, ranks, micro_batches)
    balanced = balance(computed, attention_cost(ends), ranks, size)
    found[:, places] = balanced.reshape(-1, size)
    return replace(order, rows=found.reshape(-1))


def computed_rows(order: DataOrder, ranks: int, micro_batches: int) -> NDArray[np.int64]:
    """Return the rows in the order in which ranks compute them, which may not be how they load.

    With several micro-batches MindSpore joins the rows that the ranks loaded, rank after rank, and
    cuts the result into micro-batches, each with the next rows for every rank:

        2 ranks load  [a c e g] and [b d f h]      (the order is a b c d e f g h)
        joined        a c e g b d f h, in two micro-batches  a c e g | b d f h
        rank 0 computes a c, then b d; rank 1 computes e g, then f h

    Args:
        order: The order; rank r loads every ``ranks``-th row of it, starting at r.
        ranks: Number of data-parallel ranks.
        micro_batches: Micro-batches per step of a rank.

    Returns:
        The same rows; rank r computes every ``ranks``-th of them, starting at r.
    """
    size = order.global_batch_size
    places = _loaded_places(size, ranks, micro_batches)
    found: NDArray[np.int64] = order.rows.reshape(-1, size)[:, places].reshape(-1)
    return found


def _loaded_places(size: int, ranks: int, micro_batches: int) -> NDArray[np.int64]:
    """For each place of a step's rows as computed, the place of the same row as loaded, [size]."""
    joined = np.arange(size)
    per_rank, per_micro_batch = size // ranks, size // ranks // micro_batches
    loaded = joined % per_rank * ranks + joined // per_rank
    micro_batch, rest = np.divmod(joined, ranks * per_micro_batch)
    rank, row = np.divmod(rest, per_micro_batch)
    found = np.empty(size, np.int64)
    found[(micro_batch * per_micro_batch + row) * ranks + rank] = loaded
    return found


def batch_totals(order: DataOrder, per_row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each step, the sum of ``per_row`` over the rows of the step.

    Args:
        order: The order.
        per_row: [rows] one number for each packed row, e.g. the number of its trained tokens.

    Returns:
        [steps] int64.
    """
    return per_row[order.rows].reshape(order.steps, order.global_batch_size).sum(axis=1)
