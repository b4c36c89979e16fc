"""Which segments share a row: exact-fill packing on lengths alone.

    lengths [700, 300, 600, 200, 200], rows of 1000 tokens
    -> rows [0, 1], [2, 3, 4]: both full

Rows are opened with the longest segment left and closed, where the lengths at hand allow it, by
one, two or three segments that fill them exactly. Where that does not reach the least number of
rows that any packing needs, best-fit decreasing is tried too, so the result is never worse.
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
"""Rows a step for which the accounting says how many steps an epoch has."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows of segments, one after the other in two arrays.

        rows [0, 2], [1]  ->  segments [0, 2, 1], offsets [0, 2, 3]

    Args:
        segments: [n] segment indices.
        offsets: [rows + 1] where in ``segments`` each row begins, and the last one ends.
    """

    segments: Ints
    offsets: Ints

    def __len__(self) -> int:
        """Rows."""
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ints:
        """Segment indices of a row."""
        return self.segments[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[Ints]:
        """Each row's segment indices."""
        return (self[row] for row in range(len(self)))

    def sizes(self) -> Ints:
        """[rows] segments of each."""
        return np.diff(self.offsets)

    def in_order(self, order: Ints) -> Rows:
        """The same rows, the one at ``order[0]`` first."""
        sizes = self.sizes()[order]
        return Rows(self.segments[_places(self.offsets[order], sizes)], _offsets(sizes))


@dataclass(frozen=True)
class RowPlan:
    """Which segments make which row.

    Args:
        rows: Segment indices a row; every segment is in exactly one row.
        lengths: [n] tokens a segment, int64.
        seq_length: Tokens a row.
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
    """Put every segment into a row, and the rows into a random order.

    Args:
        lengths: [n] tokens a segment, 1 ≤ length ≤ seq_length.
        seq_length: Tokens a row.
        max_segments: Segments a row at most; the compressed attention mask has no more places.
        seed: Of the rows' order: filling leaves rows with long segments first.
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
    """Rows of lengths -> rows of segment indices; equal lengths are used in file order."""
    sizes = np.array([len(row) for row, _ in patterns], np.int64)
    times = np.array([times for _, times in patterns], np.int64)
    flat = np.fromiter((length for row, _ in patterns for length in row), np.int64, sizes.sum())
    repeated = np.repeat(np.arange(len(patterns)), times)
    places = _places(_offsets(sizes)[repeated], sizes[repeated])
    segments = np.empty(len(lengths), np.int64)
    segments[_stable_order(flat[places])] = _stable_order(lengths)
    return Rows(segments, _offsets(sizes[repeated]))


def _offsets(sizes: Ints) -> Ints:
    """[n] sizes -> [n + 1] where each begins, and the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _places(starts: Ints, sizes: Ints) -> Ints:
    """Runs of consecutive places, end to end: starts [5, 0], sizes [2, 3] -> [5, 6, 0, 1, 2]."""
    offsets = _offsets(sizes)
    found: Ints = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
    return found


def _stable_order(lengths: Ints) -> Ints:
    """np.argsort(lengths, kind="stable"), several times as fast: numpy sorts 16 bits by radix."""
    low = np.argsort((lengths & 0xFFFF).astype(np.uint16), kind="stable")
    high = (lengths >> 16).astype(np.uint16)
    return low[np.argsort(high[low], kind="stable")] if high.any() else low


def next_fit_rows(lengths: Sequence[int], seq_length: int, max_segments: int) -> int:
    """Rows that filling in file order would need, as MindFormers' own handler does it."""
    rows, room, places = 0, 0, 0
    for length in lengths:
        if length > room or places == 0:
            rows, room, places = rows + 1, seq_length, max_segments
        room -= length
        places -= 1
    return rows


def accounting(plan: RowPlan, max_segments: int) -> dict[str, Any]:
    """What a plan costs: rows, fill, steps, and what filling in file order would cost.

    Fill is the share of row tokens that are a segment's; ``rows_bound`` is least_rows, which no
    packing of these lengths can go below.
    """
    rows, tokens = len(plan.rows), int(plan.lengths.sum())
    bound = least_rows(plan.lengths, plan.seq_length)
    in_order = next_fit_rows(plan.lengths.tolist(), plan.seq_length, max_segments)
    per_row = np.bincount(plan.rows.sizes())
    return {
        "rows": rows,
        "seq_length": plan.seq_length,
        "segments": len(plan.lengths),
        "tokens": tokens,
        "fill": tokens / (rows * plan.seq_length) if rows else 0.0,
        "segments_per_row": {
            str(size): int(per_row[size]) for size in np.flatnonzero(per_row).tolist()
        },
        "rows_next_fit": in_order,
        "rows_saved": in_order - rows,
        "rows_bound": bound,
        "rows_over_bound": rows - bound,
        "steps_per_epoch": _steps(rows),
        "steps_per_epoch_next_fit": _steps(in_order),
    }


def _steps(rows: int) -> dict[str, int]:
    """Rows a step -> steps an epoch."""
    return {str(size): math.ceil(rows / size) for size in _BATCH_SIZES}
