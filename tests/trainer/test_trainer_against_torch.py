"""MindFormers' Trainer and transformers with PyTorch make the same steps from the rendered YAML.

The same programs at Qwen2.5-0.5B's shape: benchmarks/qwen_05b.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import both_sides
import numpy as np
import pytest
from train_helpers import train_config, write_packs, write_policy

from pcl_reasoner.pack.arrow_folder import read_arrow_folder

pytestmark = pytest.mark.slow
SIZES = [5, 9, 14, 20, 7, 25, 30, 11, 6, 17, 22, 13]


@pytest.mark.parametrize(("loss", "tied", "clip"), [("sft", False, 1.0), ("opg", True, 0.02)])
def test_every_step_is_transformers_own(loss: str, tied: bool, clip: float, tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy", tied=tied)
    packs = write_packs(tmp_path / "packs", SIZES)
    config = train_config(
        loss=loss,
        epochs=4,
        max_steps=10,
        warmup_ratio=0.2,
        weight_decay=0.1,
        clip_grad=clip,
        learning_rate=1e-3,
        learning_rate_end=1e-4,
    ).model_dump()
    inputs = {"policy": policy, "packs": packs}
    found = both_sides.compare(tmp_path / "run", config, inputs)
    assert found.too_far == [], found.differences
    # Something was learned, clipped, and several segments shared a row.
    assert found.losses[1] < found.losses[0]
    steps = json.loads((tmp_path / "run" / "torch.json").read_text())
    assert max(step["grad_norm"] for step in steps) > clip
    assert max(len(row["rewards"]) for row in read_arrow_folder(packs).to_pylist()) > 1
    # What was replayed is what the order on record says.
    order = json.loads((tmp_path / "run" / "train" / "data_order.json").read_text())["order"]
    rows = read_arrow_folder(packs)["input_ids"].to_pylist()
    with np.load(tmp_path / "run" / "batches.npz") as batches:
        given = batches["input_ids"].reshape(len(order), -1).tolist()
    assert given == [rows[index] for index in order]


def test_a_difference_at_any_step_is_found() -> None:
    def record(step: int, loss: float) -> dict[str, float]:
        return {"step": step, "loss": loss, "grad_norm": 2.0, "learning_rate": 1e-3}

    ours = [record(1, 4.0), record(2, 3.0), record(3, 2.0)]
    theirs = [record(1, 4.0), record(2, 2.5), record(3, 2.0)]
    assert both_sides.differences_of(ours, theirs)["loss"] == pytest.approx(0.2)
    assert both_sides.differences_of(ours, theirs[:2])["loss"] == float("inf")
