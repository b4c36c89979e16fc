"""Decides which segments share a row: exact-fill packing on lengths alone.

    lengths [700, 300, 600, 200, 200], rows of 1000 tokens
    -> rows [0, 1], [2, 3, 4]: both full

A row is opened with the longest segment left. Where the lengths allow it, the row is closed by one,
two or three segments that fill it exactly. If the result has more rows than the lower bound of all
packings, other strategies and best-fit decreasing are tried, too. So the result never has more rows
than best-fit decreasing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcl_reasoner.pack.bound import least_rows
from pcl_reasoner.pack.fill import Pattern, fewest_rows

_BATCH_SIZES = (1, 8, 32, 128)
"""Rows per step for which the accounting has the number of steps per epoch."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows of segment indices, stored end to end in two arrays.

        rows [0, 2], [1]  ->  segments [0, 2, 1], offsets [0, 2, 3]

    Args:
        segments: [n] segment indices.
        offsets: [rows + 1] indices in ``segments`` where each row begins and the last one ends.
    """

    segments: Ints
    offsets: Ints

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ints:
        """Return the segment indices of a row."""
        return self.segments[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Ints]:
        """Iterate over the segment indices of each row."""
        return (self[row] for row in range(len(self)))

    def sizes(self) -> Ints:
        """Return the number of segments per row, [rows]."""
        return np.diff(self.offsets)

    def in_order(self, order: Ints) -> Rows:
        """Return the same rows in another order: the row ``order[0]`` is first."""
        sizes = self.sizes()[order]
        return Rows(self.segments[_join_ranges(self.offsets[order], sizes)], _offsets(sizes))


@dataclass(frozen=True)
class RowPlan:
    """The assignment of segments to rows.

    Args:
        rows: Segment indices per row; every segment is in exactly one row.
        lengths: [n] tokens per segment, int64.
        seq_length: Tokens per row.
    """

    rows: Rows
    lengths: Ints
    seq_length: int


def plan_rows(
    lengths: Ints,
    seq_length: int,
    max_segments: int,
    seed: int,
    one_segment_per_row: bool = False,
) -> RowPlan:
    """Assign every segment to a row, and put the rows into a random order.

    Args:
        lengths: [n] tokens per segment, 1 ≤ length ≤ seq_length.
        seq_length: Tokens per row.
        max_segments: Limit on the segments per row: the entries of the compressed attention mask.
        seed: Seed of the rows' order. Without shuffling, rows with long segments would be first.
        one_segment_per_row: True for V1.5's micro-batches of one response.
    """
    if one_segment_per_row:
        rows = Rows(np.arange(len(lengths)), np.arange(len(lengths) + 1))
    else:
        histogram = np.bincount(lengths, minlength=seq_length + 1)
        bound = max(least_rows(lengths, seq_length), -(-len(lengths) // max_segments))
        rows = _with_indices(fewest_rows(histogram, seq_length, max_segments, bound), lengths)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(rows))
    return RowPlan(rows.in_order(order), lengths, seq_length)


def _with_indices(patterns: Sequence[Pattern], lengths: Ints) -> Rows:
    """Convert rows of lengths to rows of segment indices; equal lengths are used in file order."""
    sizes = np.array([len(row) for row, _ in patterns], np.int64)
    times = np.array([times for _, times in patterns], np.int64)
    flat = np.fromiter((length for row, _ in patterns for length in row), np.int64, sizes.sum())
    repeated = np.repeat(np.arange(len(patterns)), times)
    indices = _join_ranges(_offsets(sizes)[repeated], sizes[repeated])
    segments = np.empty(len(lengths), np.int64)
    segments[_stable_order(flat[indices])] = _stable_order(lengths)
    return Rows(segments, _offsets(sizes[repeated]))


def _offsets(sizes: Ints) -> Ints:
    """Convert [n] sizes to [n + 1] offsets: where each begins and the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _join_ranges(starts: Ints, sizes: Ints) -> Ints:
    """Join runs of consecutive indices: starts [5, 0], sizes [2, 3] -> [5, 6, 0, 1, 2]."""
    offsets = _offsets(sizes)
    found: Ints = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
    return found


def _stable_order(lengths: Ints) -> Ints:
    """Do a stable argsort by 16 bits at a time: several times as fast, as numpy then uses radix."""
    low = np.argsort((lengths & 0xFFFF).astype(np.uint16), kind="stable")
    high = (lengths >> 16).astype(np.uint16)
    return low[np.argsort(high[low], kind="stable")] if high.any() else low


def next_fit_rows(lengths: Sequence[int], seq_length: int, max_segments: int) -> int:
    """Count the rows that filling in file order needs, as MindFormers' own handler does it."""
    rows, free_tokens, segments_left = 0, 0, 0
    for length in lengths:
        if length > free_tokens or segments_left == 0:
            rows, free_tokens, segments_left = rows + 1, seq_length, max_segments
        free_tokens -= length
        segments_left -= 1
    return rows


def accounting(plan: RowPlan, max_segments: int) -> dict[str, Any]:
    """Compute the rows, fill and steps of a plan, and the rows and steps of filling in file order.

    Fill is the share of row tokens that belong to a segment. ``rows_bound`` is the result of
    least_rows; no packing of these lengths has fewer rows.
    """
    rows, tokens = len(plan.rows), int(plan.lengths.sum())
    bound = least_rows(plan.lengths, plan.seq_length)
    next_fit = next_fit_rows(plan.lengths.tolist(), plan.seq_length, max_segments)
    rows_of_size = np.bincount(plan.rows.sizes()).tolist()
    return {
        "rows": rows,
        "seq_length": plan.seq_length,
        "segments": len(plan.lengths),
        "tokens": tokens,
        "fill": tokens / (rows * plan.seq_length) if rows else 0.0,
        "segments_per_row": {str(size): count for size, count in enumerate(rows_of_size) if count},
        "rows_next_fit": next_fit,
        "rows_saved": next_fit - rows,
        "rows_bound": bound,
        "rows_over_bound": rows - bound,
        "steps_per_epoch": _steps(rows),
        "steps_per_epoch_next_fit": _steps(next_fit),
    }


def _steps(rows: int) -> dict[str, int]:
    """Map rows per step to steps per epoch."""
    return {str(size): math.ceil(rows / size) for size in _BATCH_SIZES}
