"""Which segments share a row: exact-fill packing on lengths alone.

    lengths [700, 300, 600, 200, 200], rows of 1000 tokens
    -> rows [0, 1], [2, 3, 4]: both full

Rows are opened with the longest segment left and closed, where the lengths at hand allow it, by
one, two or three segments that fill them exactly. Best-fit decreasing is tried too and taken when
it needs fewer rows, so the result is never worse than that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcl_reasoner.pack.bound import least_rows

_TRIPLE_TRIES = 32
"""Third segments that are tried when a row is to be closed by three."""
_BATCH_SIZES = (1, 8, 32, 128)
"""Rows a step for which the accounting says how many steps an epoch has."""


@dataclass(frozen=True)
class RowPlan:
    """Which segments make which row.

    Args:
        rows: Segment indices a row; every segment is in exactly one row.
        lengths: [n] tokens a segment, int64.
        seq_length: Tokens a row.
    """

    rows: list[list[int]]
    lengths: npt.NDArray[np.int64]
    seq_length: int


def plan_rows(
    lengths: npt.NDArray[np.int64],
    seq_length: int,
    max_segments: int,
    seed: int,
    one_a_row: bool = False,
) -> RowPlan:
    """Put every segment into a row, and the rows into a random order.

    Args:
        lengths: [n] tokens a segment, 1 ≤ length ≤ seq_length.
        seq_length: Tokens a row.
        max_segments: Segments a row at most; the compressed attention mask has no more places.
        seed: Of the rows' order: filling leaves rows with long segments first.
        one_a_row: True for V1.5's micro-batches of one response.
    """
    if one_a_row:
        rows = [[index] for index in range(len(lengths))]
    else:
        filled = _fewest_rows(lengths.tolist(), seq_length, max_segments)
        rows = _with_indices(filled, lengths)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(rows))
    return RowPlan([rows[index] for index in order], lengths, seq_length)


def _fewest_rows(lengths: list[int], seq_length: int, max_segments: int) -> list[list[int]]:
    filled = exact_fill(lengths, seq_length, max_segments)
    bound = max(math.ceil(sum(lengths) / seq_length), math.ceil(len(lengths) / max_segments))
    if len(filled) == bound:
        return filled
    return min(filled, best_fit_decreasing(lengths, seq_length, max_segments), key=len)


def _with_indices(filled: list[list[int]], lengths: npt.NDArray[np.int64]) -> list[list[int]]:
    """Rows of lengths -> rows of segment indices; equal lengths are used in file order."""
    order = np.argsort(lengths, kind="stable")
    sizes, firsts = np.unique(lengths[order], return_index=True)
    next_of = dict(zip(sizes.tolist(), firsts.tolist(), strict=True))
    rows = []
    for row in filled:
        indices = []
        for length in row:
            indices.append(int(order[next_of[length]]))
            next_of[length] += 1
        rows.append(indices)
    return rows


class _Histogram:
    """How many segments of each length are left, with bit maps that answer in one operation.

    Bit l of ``present`` says that length l is left; bit (capacity − l) of ``mirrored`` says the
    same, so that one shift and one AND find every pair of lengths with a given sum.
    """

    def __init__(self, lengths: Sequence[int], capacity: int) -> None:
        self.counts = Counter(lengths)
        self.capacity = capacity
        self.present = 0
        self.mirrored = 0
        for length in self.counts:
            self._flip(length)

    def _flip(self, length: int) -> None:
        self.present ^= 1 << length
        self.mirrored ^= 1 << (self.capacity - length)

    def take(self, length: int) -> None:
        """Use one segment."""
        self.counts[length] -= 1
        if self.counts[length] == 0:
            self._flip(length)

    def give_back(self, length: int) -> None:
        """Undo take."""
        if self.counts[length] == 0:
            self._flip(length)
        self.counts[length] += 1

    def largest(self, limit: int) -> int:
        """The largest length left that is at most ``limit``; 0 when there is none."""
        return max((self.present & ((2 << limit) - 1)).bit_length() - 1, 0)

    def pair(self, total: int) -> tuple[int, int] | None:
        """Two lengths left that add up to ``total``, as equal as can be: small ones are scarce."""
        sums = self.present & (self.mirrored >> (self.capacity - total))
        half = total // 2
        if total % 2 == 0 and self.counts[half] == 1:
            sums &= ~(1 << half)
        start = total - half
        above = sums >> start
        if above == 0:
            return None
        longer = start + _lowest_bit(above)
        return longer, total - longer

    def exact(self, total: int, places: int) -> tuple[int, ...]:
        """At most three lengths left that add up to ``total``; empty when none are found."""
        if self.present >> total & 1:
            return (total,)
        found = self.pair(total) if places >= 2 else None
        if found is not None or places < 3:
            return found or ()
        third = self.largest(total // 3)
        for _ in range(_TRIPLE_TRIES):
            if third == 0:
                break
            self.take(third)
            found = self.pair(total - third)
            self.give_back(third)
            if found is not None:
                return (*found, third)
            third = self.largest(third - 1)
        return ()


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def exact_fill(lengths: Sequence[int], seq_length: int, max_segments: int) -> list[list[int]]:
    """Pack largest first, closing rows exactly where one to three lengths can.

    Args:
        lengths: Each 1 ≤ length ≤ seq_length.
        seq_length: Tokens a row.
        max_segments: Segments a row at most.

    Returns:
        Lengths a row.
    """
    left = _Histogram(lengths, seq_length)
    rows = []
    while left.present:
        row: list[int] = []
        room = seq_length
        while room > 0 and len(row) < max_segments:
            closing = left.exact(room, max_segments - len(row)) if row else ()
            chosen = closing or (left.largest(room),)
            if chosen == (0,):
                break
            for length in chosen:
                left.take(length)
                room -= length
            row.extend(chosen)
        rows.append(row)
    return rows


def best_fit_decreasing(
    lengths: Sequence[int], seq_length: int, max_segments: int
) -> list[list[int]]:
    """Pack longest first, each into the row with the least room that is enough.

    Args and returns as exact_fill.
    """
    rows: list[list[int]] = []
    by_room: dict[int, list[list[int]]] = {}
    rooms = 0  # bit r: a row with room r takes more
    for length in sorted(lengths, reverse=True):
        enough = rooms >> length
        if enough:
            room = length + _lowest_bit(enough)
            row = by_room[room].pop()
            if not by_room[room]:
                rooms ^= 1 << room
        else:
            row, room = [], seq_length
            rows.append(row)
        row.append(length)
        room -= length
        if room > 0 and len(row) < max_segments:
            by_room.setdefault(room, []).append(row)
            rooms |= 1 << room
    return rows


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
    per_row = Counter(len(row) for row in plan.rows)
    return {
        "rows": rows,
        "seq_length": plan.seq_length,
        "segments": len(plan.lengths),
        "tokens": tokens,
        "fill": tokens / (rows * plan.seq_length) if rows else 0.0,
        "segments_a_row": {str(size): per_row[size] for size in sorted(per_row)},
        "rows_next_fit": in_order,
        "rows_saved": in_order - rows,
        "rows_bound": bound,
        "rows_over_bound": rows - bound,
        "steps_an_epoch": {str(size): math.ceil(rows / size) for size in _BATCH_SIZES},
    }
