"""The tail of sampling: how long are most places empty, longest expected first and in file order?

    python benchmarks/sampling_tail.py [--problems 240] [--slots 24] [--off 0.3] [--seeds 9]

Lengths of responses are log-normal, as reasoning traces have them. The stage ``sample`` asks
``slots_server.py`` for one response a problem, as many at a time as it has places: once with what
the responses' lengths are expected to be (``mean_cot_tokens``, off by a log-normal factor), and
once without, which is file order. Both have the same problems and lengths; each seed has others.

Printed: the seconds from the first request to the last answer, those with fewer than half of the
places busy, and the seconds that no order could beat: all tokens over all places, or the longest
response.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import numpy.typing as npt
from sampling_client import slots_server, texts

if TYPE_CHECKING:
    from pcl_reasoner.sample.stage import SampleConfig

ORDERS = ("file order", "longest first")
PACE = 1500.0
"""Tokens a second of a place: a response of the mean length takes two thirds of one."""
MEAN = 1000


def lengths_of(count: int, spread: float, longest: int, seed: int) -> npt.NDArray[np.int64]:
    drawn = np.random.default_rng(seed).lognormal(np.log(MEAN) - spread**2 / 2, spread, count)
    return np.clip(drawn, 8, longest).astype(int)


def write_inputs(work: Path, given: argparse.Namespace, seed: int) -> npt.NDArray[np.int64]:
    """Problems with and without what is expected, and the server's plan; -> the lengths."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.curate import problem_id
    from pcl_reasoner.inference.dialogue import Dialogue, Problem

    found = texts(given.problems)
    lengths = lengths_of(len(found), given.spread, given.longest, seed)
    off = np.random.default_rng(seed + 1000).lognormal(0, given.off, len(found))
    dialogue = Dialogue(work / "policy", settings(given))
    plan = {
        text: {"ids": dialogue.prompt(Problem("", text)).ids, "tokens": int(length)}
        for text, length in zip(found, lengths, strict=True)
    }
    (work / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    rows = [{"problem_id": problem_id(text), "problem": text} for text in found]
    expected = [
        {**row, "mean_cot_tokens": float(length)}
        for row, length in zip(rows, lengths * off, strict=True)
    ]
    for name, table in zip(ORDERS, (rows, expected), strict=True):
        (work / name).mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(table), work / name / "clean.parquet")
    return lengths


def settings(given: argparse.Namespace) -> SampleConfig:
    from pcl_reasoner.sample.stage import SampleConfig

    return SampleConfig(engine="server", n=1, temperature=1.0, concurrency=given.slots)


def run(url: str, work: Path, order: str, given: argparse.Namespace) -> dict[str, float]:
    """The stage in one order; the server's own figures."""
    from pcl_reasoner.core.schema import Placement
    from pcl_reasoner.core.stage import StageContext
    from pcl_reasoner.sample.stage import sample

    page = f"{url.removesuffix('/v1')}/figures"
    httpx.post(page, trust_env=False)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        output = Path(folder) / "sample"
        output.mkdir()
        context = StageContext("sample", Path(folder) / "apart.jsonl", Placement(server_urls=[url]))
        sample(
            settings(given), {"problems": work / order, "policy": work / "policy"}, output, context
        )
    figures: dict[str, float] = httpx.get(page, trust_env=False).json()
    return figures


def main() -> None:
    from workload import machine

    from pcl_reasoner.synthetic.base_model import write_model_folder

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=240)
    parser.add_argument("--slots", type=int, default=24)
    parser.add_argument("--spread", type=float, default=0.8, help="of lengths, as a log-normal's")
    parser.add_argument("--longest", type=int, default=8 * MEAN)
    parser.add_argument("--off", type=float, default=0.3, help="of what is expected, the same way")
    parser.add_argument("--seeds", type=int, default=9)
    given = parser.parse_args()
    print(machine("httpx"))
    found: dict[str, list[dict[str, float]]] = {order: [] for order in ORDERS}
    print("seed   least    " + "    ".join(f"{order}: seconds, under half" for order in ORDERS))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_model_folder(work / "policy", texts(64), vocab_size=2048, hidden=64, layers=2, seed=0)
        for seed in range(given.seeds):
            lengths = write_inputs(work, given, seed)
            least = max(lengths.sum() / given.slots, lengths.max()) / PACE
            options = ["--slots", str(given.slots), "--pace", str(PACE)]
            with slots_server(work, *options) as url:
                for order in ORDERS if seed % 2 == 0 else ORDERS[::-1]:
                    found[order].append(run(url, work, order, given))
            last = [found[order][-1] for order in ORDERS]
            cells = [f"{one['seconds']:16.2f} {one['under_half']:11.2f}" for one in last]
            print(f"{seed:4} {least:7.2f}  {'  '.join(cells)}", flush=True)
    for order in ORDERS:
        shares = [one["under_half"] / one["seconds"] for one in found[order]]
        tails = [one["under_half"] for one in found[order]]
        print(
            f"{order}: under half for a median of {statistics.median(tails):.2f} s "
            f"({min(tails):.2f} to {max(tails):.2f}), {statistics.median(shares):.0%} of the time"
        )


if __name__ == "__main__":
    main()
