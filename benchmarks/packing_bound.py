"""A bound on packed rows that is higher than L2 where most segments are long.

    python benchmarks/packing_bound.py [--segments 48000] [--mean 20000] [--steps 64 32 16]

The linear programme over all patterns of a row (Gilmore and Gomory), its columns made as they are
needed. Lengths are rounded down to a step, so that what it gives is below what any packing of the
lengths themselves needs; the finer the step, the higher. Printed beside it: Martello and Toth's L2
and the rows of our packing. Minutes at 16.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
import numpy.typing as npt
from packing import PLACES, Ints, drawn_lengths
from scipy.optimize import linprog
from scipy.sparse import csc_matrix

from pcl_reasoner.pack.bound import least_rows
from pcl_reasoner.pack.packing import plan_rows

SEQ_LENGTH, SIGMA = 32_768, 0.5
COLUMNS_A_ROUND, ROUNDS = 150, 400
Floats = npt.NDArray[np.float64]
Pattern = tuple[tuple[int, int], ...]
"""(length in steps, how many of it), sorted."""


def solved(patterns: list[Pattern], needed: dict[int, int]) -> tuple[float, Floats]:
    """Rows of the programme over these patterns, and the price of each length."""
    place = {length: row for row, length in enumerate(needed)}
    cells = [
        (many, place[length], column)
        for column, pattern in enumerate(patterns)
        for length, many in pattern
    ]
    values, rows, columns = zip(*cells, strict=True)
    matrix = csc_matrix((values, (rows, columns)), shape=(len(needed), len(patterns)))
    found = linprog(np.ones(len(patterns)), A_ub=-matrix, b_ub=-np.array(list(needed.values())))
    return found.fun, -found.ineqlin.marginals


def best_fillings(lengths: Ints, prices: Floats, room: int) -> tuple[Floats, list[int]]:
    """The highest price that fits into each room, and the length that is put in first there."""
    worth, first = np.zeros(room + 1), [0] * (room + 1)
    for size in range(1, room + 1):
        fitting = np.searchsorted(lengths, size, "right")
        found = worth[size - lengths[:fitting]] + prices[:fitting]
        best = int(found.argmax()) if fitting else 0
        better = fitting and found[best] > worth[size - 1] + 1e-12
        worth[size] = found[best] if better else worth[size - 1]
        first[size] = int(lengths[best]) if better else 0
    return worth, first


def filled(length: int, room: int, first: list[int]) -> Pattern:
    """The pattern of highest price that begins with a length."""
    chosen, left = Counter([length]), room - length
    while left > 0:
        if first[left]:
            chosen[first[left]] += 1
        left -= first[left] or 1
    return tuple(sorted(chosen.items()))


def bound(lengths: Ints, step: int) -> float:
    """Rows that no packing of the lengths goes below."""
    room = SEQ_LENGTH // step
    steps, counts = np.unique(np.maximum(lengths // step, 1), return_counts=True)
    needed = dict(zip(steps.tolist(), counts.tolist(), strict=True))
    # To begin with, every length with the longest that still fits beside it.
    fitting = [steps[steps <= room - length] for length in steps]
    pairs = ([length, *beside[-1:]] for length, beside in zip(steps, fitting, strict=True))
    patterns = dict.fromkeys(tuple(sorted(Counter(map(int, pair)).items())) for pair in pairs)
    best = 0.0
    for _ in range(ROUNDS):
        rows, prices = solved(list(patterns), needed)
        worth, first = best_fillings(steps, prices, room)
        # Prices divided by what the best row is worth are feasible in the dual programme.
        best = max(best, rows / max(worth[room], 1.0))
        gains = prices + worth[room - steps]
        order = np.argsort(-gains)[:COLUMNS_A_ROUND]
        before = len(patterns)
        for place in order[gains[order] > 1 + 1e-7]:
            patterns[filled(int(steps[place]), room, first)] = None
        if len(patterns) == before or rows - best < 0.5:
            break
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, default=48_000)
    parser.add_argument("--mean", type=int, default=20_000, help="before the cut; sigma is 0.5")
    parser.add_argument("--steps", type=int, nargs="+", default=[64, 32, 16])
    given = parser.parse_args()
    lengths = drawn_lengths(given.segments, given.mean, SIGMA, SEQ_LENGTH, seed=1)
    rows = len(plan_rows(lengths, SEQ_LENGTH, PLACES, 0).rows)
    print(f"L2 {least_rows(lengths, SEQ_LENGTH):,} rows, packed into {rows:,}")
    for step in given.steps:
        print(f"lengths rounded down to {step}: {bound(lengths, step):,.1f} rows", flush=True)


if __name__ == "__main__":
    main()
