"""Qwen2.5-0.5B's shape: MindFormers' Trainer against transformers and PyTorch, step by step.

    python benchmarks/qwen_05b.py [--steps 20] [--length 256] [--layers 24] [--small] [--work DIR]

Random weights, seeded. Four runs by the train stage, in float32 on a CPU: SFT packed and one-a-row,
then OPG packed and one-a-row from the packed SFT's weights, as V1.5 starts from V1. The batches
that MindFormers' data pipeline gave are saved, and transformers makes the same steps on them, with
the same AdamW, clipping and schedule. The two sides run one after the other, in processes of their
own.

Printed: the largest relative differences of losses and gradient norms over the steps and of the
logits of the first batch at the end, seconds a step and peak memory. Exit code 1 when one is over
its tolerance (both_sides.py).

``--layers`` makes the model shallower, at full width and vocabulary: all 24 take 16 GiB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from both_sides import TOLERANCE, Compared, compare
from workload import (
    QWEN_05B,
    SMALL,
    drawn_lengths,
    machine,
    samples_of,
    write_packs,
    write_policy,
)

from pcl_reasoner.weights.conversion import convert

PLACES, ROWS = 16, 2


def train_settings(loss: str, given: argparse.Namespace) -> dict[str, Any]:
    """The train stage's configuration."""
    return {
        "loss": loss,
        "seed": 5,
        "epochs": given.steps,
        "max_steps": given.steps,
        "learning_rate": 3e-4 if loss == "sft" else 3e-5,
        "learning_rate_end": 3e-6,
        "warmup_ratio": 0.1,
        "global_batch_size": ROWS,
        "micro_batch_size": ROWS,
        "seq_length": given.length,
        "max_segments": PLACES,
        "weight_decay": 0.1,
        "device": "CPU",
        "precision": "float32",
        "compressed_mask": False,
    }


def runs(
    work: Path, shape: dict[str, Any], given: argparse.Namespace
) -> Iterator[tuple[str, Compared]]:
    """SFT and OPG, packed and one-a-row; OPG starts from what the packed SFT left."""
    base = write_policy(work / "base", shape)
    length = given.length
    lengths = drawn_lengths(40, length * 0.28, length)
    samples = samples_of(lengths, shape["vocab_size"])
    policy = base
    for loss in ("sft", "opg"):
        for layout in ("packed", "one-a-row"):
            folder = work / f"{loss}-{layout}"
            packs = work / f"packs-{layout}"
            if not packs.exists():
                write_packs(packs, samples, length, PLACES, layout == "one-a-row")
            inputs = {"policy": policy, "packs": packs}
            yield f"{loss} {layout}", compare(folder, train_settings(loss, given), inputs)
        if loss == "sft":
            policy = work / "after-sft"
            trained = work / "sft-packed" / "train" / "checkpoint"
            convert(trained, policy, "huggingface", 5_000_000_000, base, False)


def line(name: str, found: Compared) -> str:
    """One run in words."""
    apart = ", ".join(f"{what} {value:.1e}" for what, value in found.differences.items())
    seconds = "too few seen" if found.seconds[0] is None else f"{found.seconds[0]:.2f}"
    return (
        f"{name:14} loss {found.losses[0]:.4f} -> {found.losses[1]:.4f}; apart: {apart}; seconds "
        f"a step {seconds} and {found.seconds[1]:.2f}; peak {found.peak[0]:.1f} and "
        f"{found.peak[1]:.1f} GiB"
    )


def main() -> None:
    """Compare, print, and exit 1 when too far apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--length", type=int, default=256, help="tokens a row; 2 rows a step")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--small", action="store_true", help="a small model, to try it out")
    parser.add_argument("--work", type=Path, help="working folder; a temporary one if left out")
    given = parser.parse_args()
    shape = dict(SMALL) if given.small else {**QWEN_05B, "num_hidden_layers": given.layers}
    print(machine("mindspore", "mindformers", "torch", "transformers"))
    print(f"{shape}; {ROWS} rows of {given.length} tokens a step, {given.steps} steps, float32")
    print("MindFormers first, transformers second", flush=True)
    too_far = []
    with tempfile.TemporaryDirectory() as folder:
        for name, found in runs(given.work or Path(folder), shape, given):
            print(line(name, found), flush=True)
            too_far += [f"{name}: {what}" for what in found.too_far]
    if too_far:
        sys.exit(f"over tolerance {TOLERANCE}: {'; '.join(too_far)}")


if __name__ == "__main__":
    main()
