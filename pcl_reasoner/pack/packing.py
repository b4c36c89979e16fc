"""Decides which segments share a row: exact-fill packing on lengths alone.

    lengths [700, 300, 600, 200, 200], rows of 1000 tokens
    -> rows [0, 1], [2, 3, 4]: both full

A row begins with the longest remaining segment (towards the end, with a random one). If the lengths
allow it, one, two or three segments then fill the row exactly and close it. If the result has more
rows than the lower bound of all packings, other strategies and best-fit decreasing are tried, too.
So the result never has more rows than best-fit decreasing.
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
"""Numbers of rows per step for which ``accounting`` computes the steps per epoch."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """The segment indices of all rows in one array, with the offset of each row in another.

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
    lengths: Ints, seq_length: int, max_segments: int, seed: int, one_segment_per_row: bool = False
) -> RowPlan:
    """Assign every segment to a row, and put the rows into a random order.

    Args:
        lengths: [n] tokens per segment, 1 ≤ length ≤ seq_length.
        seq_length: Tokens per row.
        max_segments: Limit on the segments per row: the length of the model's ``actual_seq_len``.
        seed: Seed of the rows' order. Without shuffling, rows with long segments would be first.
        one_segment_per_row: True to put one segment into each row, as V1.5's training does.
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
    """Replace lengths in rows by segment indices (segments of equal length: in file order)."""
    sizes = np.array([len(row) for row, _ in patterns], np.int64)
    times = np.array([times for _, times in patterns], np.int64)
    flat = np.fromiter((length for row, _ in patterns for length in row), np.int64, sizes.sum())
    repeated = np.repeat(np.arange(len(patterns)), times)
    indices = _join_ranges(_offsets(sizes)[repeated], sizes[repeated])
    segments = np.empty(len(lengths), np.int64)
    segments[_stable_order(flat[indices])] = _stable_order(lengths)
    return Rows(segments, _offsets(sizes[repeated]))


def _offsets(sizes: Ints) -> Ints:
    """Convert [n] sizes of ranges to [n + 1] offsets: each range's start, and the last's end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _join_ranges(starts: Ints, sizes: Ints) -> Ints:
    """Join runs of consecutive indices: starts [5, 0], sizes [2, 3] -> [5, 6, 0, 1, 2]."""
    offsets = _offsets(sizes)
    found: Ints = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
    return found


def _stable_order(lengths: Ints) -> Ints:
    """Return a stable argsort; numpy sorts 16-bit numbers by radix, several times as fast."""
    low = np.argsort((lengths & 0xFFFF).astype(np.uint16), kind="stable")
    high = (lengths >> 16).astype(np.uint16)
    return low[np.argsort(high[low], kind="stable")] if high.any() else low


def next_fit_rows(lengths: Sequence[int], seq_length: int, max_segments: int) -> int:
    """Return the number of rows if they are filled in file order, as by MindFormers' handler."""
    rows, free_tokens, segments_left = 0, 0, 0
    for length in lengths:
        if length > free_tokens or segments_left == 0:
            rows, free_tokens, segments_left = rows + 1, seq_length, max_segments
        free_tokens -= length
        segments_left -= 1
    return rows


def accounting(plan: RowPlan, max_segments: int) -> dict[str, Any]:
    """Return a plan's rows, fill and steps; for comparison, rows and steps of next_fit_rows.

    Fill is the share of row tokens that belong to segments, not to padding. ``rows_bound`` is the
    result of least_rows; no packing of these lengths has fewer rows.
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
    """Return rows per step -> steps per epoch, for _BATCH_SIZES."""
    return {str(size): math.ceil(rows / size) for size in _BATCH_SIZES}
