"""Packed OPG against one segment a row: padded to the row, padded to buckets, and unpadded.

    python benchmarks/packing_speed.py [--length 1024] [--segments 32] [--rounds 3] [--work DIR]

The same model and the same segments: forward and backward of every micro-batch of one row, in graph
mode on a CPU, without the optimizer (a layout with more rows would else pay it more often). Every
layout is compiled first; then the layouts take turns, round after round, and the medians are
compared. Lengths are log-normal, rounded up to four sizes, as MindSpore compiles a graph for each
length of an unpadded row.

Printed for each layout: rows, tokens, seconds, segments a second; how many times faster packed rows
are; the token ratio, which is the most that packing can give; and the one as a share of the other.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from workload import SMALL, drawn_lengths, machine, samples_of, write_job

from pcl_reasoner.pack.rows import plan_packing
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.trainer.rows import model_row

PLACES = 32
SIZES = 4
Columns = dict[str, npt.NDArray[Any]]


def settings(length: int) -> TrainConfig:
    """OPG on rows of a length, with a dense mask a row."""
    return TrainConfig(
        loss="opg",
        seed=0,
        epochs=1,
        learning_rate=1e-5,
        learning_rate_end=0.0,
        warmup_ratio=0.0,
        global_batch_size=1,
        seq_length=length,
        max_segments=PLACES,
        device="CPU",
        precision="float32",
        compressed_mask=False,
    )


def few_lengths(lengths: list[int], length: int) -> list[int]:
    """Round lengths up to SIZES quantiles, multiples of 16, none longer than a row."""
    edges = np.quantile(lengths, np.linspace(0, 1, SIZES + 1)[1:])
    edges = np.minimum(np.ceil(edges / 16) * 16, length).astype(int)
    return [int(edges[edges >= size].min()) if size <= edges[-1] else length for size in lengths]


def packed_rows(samples: Any, length: int, one_segment_per_row: bool) -> list[Columns]:
    """The loader's columns of the rows, each a micro-batch of one."""
    packing = plan_packing(samples, length, PLACES, 0, 0, one_segment_per_row)
    found = []
    for batch in packing.batches():
        for row in batch.to_pylist():
            values = model_row(row, PLACES, 1.0, 1.0, False)
            found.append({name: value[None] for name, value in values.items()})
    return found


def one_segment_per_row(samples: Any, length_of: Any) -> list[Columns]:
    """Rows of one segment, each padded to what ``length_of`` says of its length."""
    found = []
    for index in range(len(samples)):
        sample = samples.slice(index, 1)
        found += packed_rows(sample, length_of(sample["length"][0].as_py()), True)
    return found


def layouts(samples: Any, length: int) -> dict[str, list[Columns]]:
    """The same segments in four ways."""
    return {
        "packed": packed_rows(samples, length, False),
        "padded to the row": one_segment_per_row(samples, lambda _: length),
        "padded to buckets": one_segment_per_row(
            samples, lambda size: 1 << max(6, (size - 1).bit_length())
        ),
        "unpadded": one_segment_per_row(samples, lambda size: size),
    }


def seconds_of(gradients: Any, rows: list[Any]) -> float:
    """Forward and backward of all rows, one after the other."""
    started = time.perf_counter()
    for row in rows:
        loss, _ = gradients(*row)
        loss.asnumpy()
    return time.perf_counter() - started


def measure(work: Path, given: argparse.Namespace) -> dict[str, tuple[int, int, float]]:
    """(rows, tokens, median seconds) of each layout."""
    lengths = few_lengths(
        drawn_lengths(given.segments, given.length / 5, given.length), given.length
    )
    samples = samples_of(lengths, SMALL["vocab_size"])
    checkpoint = write_job(work, SMALL, settings(given.length))
    from gradient_step import Gradients, network_of, tensors
    from mindformers_side import prepare

    config = prepare(str(work / "mindformers.yaml"))
    gradients = Gradients(network_of(config, checkpoint))
    keys = list(config.train_dataset.construct_args_key)
    found = layouts(samples, given.length)
    batches = {name: [tensors(row, keys) for row in rows] for name, rows in found.items()}
    for rows in batches.values():
        seconds_of(gradients, rows)
    times: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(given.rounds):
        for name, rows in batches.items():
            times[name].append(seconds_of(gradients, rows))
    tokens = {name: sum(row["input_ids"].size for row in rows) for name, rows in found.items()}
    return {
        name: (len(batches[name]), tokens[name], float(np.median(times[name]))) for name in batches
    }


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1024, help="tokens a row")
    parser.add_argument("--segments", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ.update(GLOG_v="3")
    print(machine("mindspore", "mindformers"))
    print(f"{SMALL}; {given.segments} segments, rows of {given.length} tokens, float32", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given)
    _, packed, fastest = found["packed"]
    for name, (rows, tokens, seconds) in found.items():
        faster, most = seconds / fastest, tokens / packed
        print(
            f"{name:18} {rows:3} rows, {tokens:6} tokens, {seconds:7.2f} s, "
            f"{given.segments / seconds:6.1f} segments/s; packed is {faster:.2f} times "
            f"as fast, the token ratio is {most:.2f}: {100 * faster / most:.0f} %"
        )


if __name__ == "__main__":
    main()
