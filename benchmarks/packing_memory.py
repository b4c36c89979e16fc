"""Peak memory of the pack stage over segments of a given length, a row of tokens at a time.

    python benchmarks/packing_memory.py [--segments 1000 10000 100000] [--tokens 10000] [--work DIR]

Makes segments of 0.5 to 1.5 times ``--tokens`` as the tokenize stage writes them, runs the pack
stage on them in a process of its own, and prints its CPU-seconds, its peak of anonymous memory
(RssAnon; mapped files are not in it) and what it wrote. The tokens of all rows are counted again
afterwards.
100 000 segments of 10 000 tokens take 20 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from curation_speed import measured
from workload import machine

from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder

SEQ_LENGTH, BATCH = 32_768, 50


def batches(segments: int, tokens: int) -> Iterator[pa.RecordBatch]:
    """Segments as the tokenize stage writes them; the first tenth of each is its prompt."""
    rng = np.random.default_rng(0)
    for first in range(0, segments, BATCH):
        number = min(BATCH, segments - first)
        lengths = rng.integers(tokens // 2, tokens * 3 // 2, number)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        ids = rng.integers(5, 150_000, int(lengths.sum()), dtype=np.int32)
        labels = ids.copy()
        for start, length in zip(offsets.to_pylist(), lengths, strict=False):
            labels[start : start + length // 10] = -100
        columns = {
            "problem_id": [f"{(first + index) // 8:016x}" for index in range(number)],
            "sample_index": [(first + index) % 8 for index in range(number)],
            "input_ids": pa.ListArray.from_arrays(offsets, ids),
            "labels": pa.ListArray.from_arrays(offsets, labels),
            "length": lengths,
            "reward": rng.integers(0, 2, number),
            "pass_rate": np.full(number, 0.5),
            "advantage": np.zeros(number),
        }
        yield pa.table(columns).cast(SEGMENTS).combine_chunks().to_batches()[0]


def run_pack(samples: Path, output: Path) -> None:
    """The pack stage, in this process."""
    from pcl_reasoner.core.stage import StageContext
    from pcl_reasoner.pack.config import PackConfig
    from pcl_reasoner.pack.stage import pack

    context = StageContext("pack", output / "quarantined.jsonl")
    pack(PackConfig(seq_length=SEQ_LENGTH), {"samples": samples}, output, context)


def compare(work: Path, segments: int, tokens: int) -> None:
    """Make segments, pack them, print what that took, and count the tokens again."""
    samples, output = work / "samples", work / "pack"
    for folder in (samples, output):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    write_arrow_folder(samples, SEGMENTS, batches(segments, tokens))
    (samples / "meta.json").write_text('{"pad_token_id": 0}\n')
    seconds, peak = measured([__file__, "--pack", str(samples), str(output)])
    figures = json.loads((output / "accounting.json").read_text())
    ends = read_arrow_folder(output)["actual_seq_len"].combine_chunks()
    starts = np.concatenate([[0], ends.offsets.to_numpy()[1:-1]])
    last = np.maximum.reduceat(ends.values.to_numpy(), starts)
    total = int(read_arrow_folder(samples)["length"].to_numpy().sum())
    if int(last.sum()) != total:
        raise SystemExit(f"{last.sum()} tokens in the rows, expected {total}")
    print(
        f"{segments:9,} segments, {total:13,} tokens: {figures['rows']:7,} rows, "
        f"{seconds:7.1f} CPU-s, peak {peak:5.0f} MB",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--tokens", type=int, default=10_000, help="mean of a segment")
    parser.add_argument("--work", type=Path, help="kept; a temporary folder when left out")
    parser.add_argument("--pack", type=Path, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.pack:
        run_pack(*given.pack)
        return
    print(machine("numpy", "pyarrow"))
    with tempfile.TemporaryDirectory() as temporary:
        for segments in given.segments:
            compare(given.work or Path(temporary), segments, given.tokens)


if __name__ == "__main__":
    main()
