"""Exact-fill packing against MindFormers' PackingHandler, TRL's bfd, next-fit and the lower bound.

    python benchmarks/packing.py [--sizes 48000 200000 1000000] [--length 32768] [--rounds 5]

Lengths are log-normal (mean 10 500 before the cut, sigma 0.75), drawn again where they are under
200 or longer than a row. For each number of segments: rows, fill, and CPU-seconds of the plan
alone, no tokens moved. Ours is the median of the rounds, the others run once.

TRL's own function runs on lists of nulls, which have lengths and no bytes, and without its last
step, which moves the tokens. It packs 1 000 samples at a time unless told otherwise, so that is a
line of its own. MindFormers' handler moves tokens through Python lists: it runs on the first 400
segments, its rows there are compared with next-fit's, and next-fit stands for it at full size. A
peer that is not installed is said to be absent.

Then what balancing gains: the slowest rank's attention (sum of squared segment lengths) over the
mean rank's. Last, for other means the most rows over the bound of several sigmas and seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from workload import machine

from pcl_reasoner.pack.balance import attention_cost, balance, imbalance
from pcl_reasoner.pack.bound import least_rows
from pcl_reasoner.pack.order import data_order
from pcl_reasoner.pack.packing import next_fit_rows, plan_rows

PLACES = 128
MINDFORMERS_SEGMENTS = 400
MEANS, SIGMAS, SEEDS = (6_000, 10_500, 16_000, 20_000), (0.5, 0.75, 1.0), (1, 2, 3)
GLOBAL_BATCH, RANKS = 128, (8, 16, 64, 128)
Ints = npt.NDArray[np.int64]


def drawn_lengths(number: int, mean: float, sigma: float, longest: int, seed: int) -> Ints:
    """[number] log-normal lengths from 200 to a row."""
    rng = np.random.default_rng(seed)
    found = np.empty(0, np.int64)
    while len(found) < number:
        more = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, number).astype(np.int64)
        found = np.concatenate([found, more[(more >= 200) & (more <= longest)]])
    return found[:number]


def cpu_seconds(function: Callable[[], int], rounds: int = 1) -> tuple[int, float]:
    """The rows that a function needs, and the median CPU-seconds in which it says so."""
    seconds, rows = [], 0
    for _ in range(rounds):
        started = time.process_time()
        rows = function()
        seconds.append(time.process_time() - started)
    return rows, statistics.median(seconds)


def trl_rows(lengths: Ints, length: int, window: int) -> int:
    """Rows of TRL's best-fit decreasing, so many samples at a time."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from trl.data_utils import _pack_bfd

    take = pc.take

    def take_no_tokens(data: Any, indices: Any, **options: Any) -> Any:
        """An index of 8 bytes a token would be made, even where the tokens have no bytes."""
        return data if isinstance(data, pa.Table) else take(data, indices, **options)

    rows = 0
    with mock.patch("pyarrow.compute.take", take_no_tokens):
        for start in range(0, len(lengths), window):
            some = lengths[start : start + window]
            offsets = pa.array(np.concatenate([[0], np.cumsum(some)]), pa.int64())
            tokens = pa.LargeListArray.from_arrays(offsets, pa.nulls(int(some.sum())))
            rows += _pack_bfd(pa.table({"input_ids": tokens}), length).num_rows
    return rows


def mindformers_rows(lengths: Ints, length: int) -> int:
    """Rows of MindFormers' handler, on tokens."""
    from mindformers.dataset.handler.packing_handler import PackingHandler, pack_examples

    config = PackingHandler(length, pad_token_id=0, ignore_token_id=-100).config
    samples = ({"input_ids": [1] * size, "labels": [1] * size} for size in lengths.tolist())
    return len(pack_examples(samples, config))


def next_fit(lengths: Ints, length: int) -> int:
    """Rows in file order, with no limit on the segments of a row, as MindFormers has none."""
    return next_fit_rows(lengths.tolist(), length, len(lengths))


def compare(lengths: Ints, length: int, rounds: int) -> None:
    """Print a line for each way to pack these lengths."""
    ways: dict[str, tuple[Callable[[], int], int]] = {
        "exact fill": (lambda: len(plan_rows(lengths, length, PLACES, 0).rows), rounds),
        "TRL bfd, all at once": (lambda: trl_rows(lengths, length, len(lengths)), 1),
        "TRL bfd, 1 000 at a time": (lambda: trl_rows(lengths, length, 1_000), 1),
        "next-fit (MindFormers)": (lambda: next_fit(lengths, length), 1),
    }
    bound, tokens = least_rows(lengths, length), int(lengths.sum())
    print(f"{len(lengths):,} segments, {tokens:,} tokens, bound {bound:,} rows", flush=True)
    for name, (function, times) in ways.items():
        try:
            rows, seconds = cpu_seconds(function, times)
        except ImportError as error:
            print(f"  {name:26} absent: {error}")
            continue
        fill = 100 * tokens / (rows * length)
        print(
            f"  {name:26} {rows:8,} rows, {rows - bound:7,} over, fill {fill:7.3f} %, "
            f"{seconds:7.3f} CPU-s",
            flush=True,
        )


def check_mindformers(lengths: Ints, length: int) -> None:
    """Print what MindFormers' handler itself needs for few segments."""
    some = lengths[:MINDFORMERS_SEGMENTS]
    try:
        rows, seconds = cpu_seconds(lambda: mindformers_rows(some, length))
    except ImportError as error:
        print(f"MindFormers is absent: {error}")
        return
    print(
        f"MindFormers' PackingHandler, {len(some)} segments with their tokens: {rows} rows, "
        f"next-fit {next_fit(some, length)}, {seconds:.2f} CPU-s"
    )


def most_over(number: int, length: int) -> dict[int, int]:
    """Mean of the lengths -> the most rows over the bound, over sigmas and seeds."""
    found = dict.fromkeys(MEANS, 0)
    for mean, sigma, seed in itertools.product(MEANS, SIGMAS, SEEDS):
        lengths = drawn_lengths(number, mean, sigma, length, seed)
        over = len(plan_rows(lengths, length, PLACES, 0).rows) - least_rows(lengths, length)
        found[mean] = max(found[mean], over)
    return found


def gain(lengths: Ints, length: int) -> dict[int, tuple[float, float]]:
    """Ranks -> the slowest rank's attention over the mean rank's, as shuffled and as balanced."""
    plan = plan_rows(lengths, length, PLACES, 0)
    costs = attention_cost(np.cumsum(plan.lengths[row]) for row in plan.rows)
    order = data_order(len(plan.rows), 1, GLOBAL_BATCH, seed=0).rows
    found = {}
    for ranks in RANKS:
        balanced = balance(order, costs, ranks, GLOBAL_BATCH)
        before = imbalance(order, costs, ranks, GLOBAL_BATCH)
        after = imbalance(balanced, costs, ranks, GLOBAL_BATCH)
        found[ranks] = (round(before, 4), round(after, 4))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[48_000, 200_000, 1_000_000])
    parser.add_argument("--length", type=int, default=32_768, help="tokens a row")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    os.environ.setdefault("LOG_MF_PATH", tempfile.mkdtemp())
    peers = [name for name in ("mindformers", "trl") if importlib.util.find_spec(name)]
    print(machine("numpy", *peers))
    # Each peer once before the clock runs, for what it imports.
    with contextlib.suppress(ImportError):
        trl_rows(np.array([8, 8]), 8, 2)
    with contextlib.suppress(ImportError):
        mindformers_rows(np.array([8, 8]), 8)
    for number in given.sizes:
        compare(drawn_lengths(number, 10_500, 0.75, given.length, 0), given.length, given.rounds)
    check_mindformers(drawn_lengths(48_000, 10_500, 0.75, given.length, 0), given.length)
    found = gain(drawn_lengths(48_000, 10_500, 0.75, given.length, 0), given.length)
    print(
        f"slowest rank over mean rank, global batch {GLOBAL_BATCH}, ranks: (before, after) {found}"
    )
    print(f"most rows over the bound for each mean; sigma of {SIGMAS}, {len(SEEDS)} seeds:")
    for number in given.sizes:
        print(f"  {number:,} segments: {most_over(number, given.length)}", flush=True)


if __name__ == "__main__":
    main()
