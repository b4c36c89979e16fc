"""One run by MindFormers' Trainer and the same run by transformers, and how far they are apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from workload import measured

HERE = Path(__file__).parent
TOLERANCE = {"loss": 2e-5, "grad_norm": 5e-4, "learning_rate": 1e-5, "logits": 1e-3}
"""Relative; logits to the largest of them. Float32 sums in another order, step upon step."""


@dataclass(frozen=True)
class Compared:
    """What two sides made of one run.

    Args:
        differences: Largest relative difference over the steps, by what is compared.
        losses: First and last loss of MindFormers' side.
        seconds: A step, of each side; None where too few were seen.
        peak: GiB, of each side's largest process.
    """

    differences: dict[str, float]
    losses: tuple[float, float]
    seconds: tuple[float | None, float]
    peak: tuple[float, float]

    @property
    def too_far(self) -> list[str]:
        """What is over its tolerance, or no number."""
        found = self.differences.items()
        return [name for name, value in found if not value <= TOLERANCE[name]]


def compare(folder: Path, config: Mapping[str, Any], inputs: Mapping[str, Path]) -> Compared:
    """Train on both sides, one after the other, each in a process of its own.

    Args:
        folder: Working folder of this run; ``train/`` in it becomes the stage's artifact.
        config: Of the train stage.
        inputs: ``packs`` and ``policy``.
    """
    folder.mkdir(parents=True)
    given, stage = folder / "given.json", folder / "train"
    yaml_file, batches = stage / "mindformers.yaml", folder / "batches.npz"
    paths = {name: str(path.resolve()) for name, path in inputs.items()}
    value = {"config": dict(config), "inputs": paths, "output": str(stage.resolve())}
    given.write_text(json.dumps(value), encoding="utf-8")
    side, replay = str(HERE / "mindformers_side.py"), str(HERE / "torch_replay.py")
    _, ours = measured([side, "train", str(given)])
    checkpoint, logits = stage / "checkpoint" / "model.safetensors", folder / "ours.npy"
    measured([side, "save", str(yaml_file), str(checkpoint), str(batches), str(logits)])
    steps, others = folder / "torch.json", folder / "torch.npy"
    policy = str(inputs["policy"])
    _, theirs = measured([replay, str(yaml_file), str(batches), policy, str(steps), str(others)])
    records = [json.loads(line) for line in (stage / "metrics.jsonl").read_text().splitlines()]
    replayed = json.loads(steps.read_text(encoding="utf-8"))
    differences = differences_of(records, replayed) | {"logits": logits_apart(logits, others)}
    seconds = json.loads(given.read_text(encoding="utf-8"))["seconds_per_step"]
    torch_seconds = float(np.median([record["seconds"] for record in replayed]))
    losses = (records[0]["loss"], records[-1]["loss"])
    return Compared(differences, losses, (seconds, torch_seconds), (ours, theirs))


def differences_of(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, float]:
    """The largest relative differences over the steps; inf where the steps are not the same."""
    names = ("loss", "grad_norm", "learning_rate")
    if [record["step"] for record in ours] != [record["step"] for record in theirs]:
        return dict.fromkeys(names, float("inf"))
    pairs = list(zip(ours, theirs, strict=True))
    # The rate starts from 0; held against the largest one.
    largest = {"learning_rate": max(abs(record["learning_rate"]) for record in theirs)}
    return {
        name: max(
            abs(one[name] - two[name]) / largest.get(name, abs(two[name])) for one, two in pairs
        )
        for name in names
    }


def logits_apart(ours: Path, theirs: Path) -> float:
    """Largest difference of two arrays, over the second's largest entry."""
    one, two = np.load(ours, mmap_mode="r"), np.load(theirs, mmap_mode="r")
    if one.shape != two.shape:
        return float("inf")
    return float(np.abs(one - two).max() / np.abs(two).max())
