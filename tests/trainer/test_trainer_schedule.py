"""Schedule, AdamW and clipping: MindFormers' own, against the formulas and PyTorch's AdamW."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from train_helpers import train_config, write_packs, write_policy
from transformers import AutoModelForCausalLM

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.pack.order import data_order
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.stage import export, train
from pcl_reasoner.train.stopping import read_steps

pytestmark = pytest.mark.slow

STEPS, WARM, HIGH, LOW, CLIP = 8, 2, 2e-3, 1e-4, 1.0
"""Of 8 steps a quarter warms up."""


def config() -> TrainConfig:
    return train_config(
        epochs=4,
        max_steps=STEPS,
        learning_rate=HIGH,
        learning_rate_end=LOW,
        warmup_ratio=0.25,
        weight_decay=0.1,
        clip_grad=CLIP,
    )


def rate(step: int) -> float:
    """The rate of a step, 1-based: up in a line from 0, then half a cosine down."""
    done = step - 1
    if done < WARM:
        return HIGH * done / WARM
    share = (done - WARM) / (STEPS - WARM)
    return LOW + (HIGH - LOW) * 0.5 * (1 + math.cos(math.pi * share))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("schedule")
    sizes = [5, 9, 14, 20, 7, 25, 30, 11, 6, 17]
    return {
        "policy": write_policy(folder / "policy"),
        "packs": write_packs(folder / "packs", sizes),
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, Path]) -> Path:
    """The train stage's folder, and the export's beside it."""
    folder = tmp_path_factory.mktemp("trained")
    for name in ("train", "export"):
        (folder / name).mkdir()
    context = StageContext("train", folder / "quarantined.jsonl")
    train(config(), inputs, folder / "train", context)
    return folder / "train"


def torch_steps(inputs: dict[str, Path]) -> tuple[list[tuple[float, float]], dict[str, Any]]:
    """The same by transformers and torch.optim.AdamW: (loss, norm before clipping) a step."""
    model = AutoModelForCausalLM.from_pretrained(inputs["policy"]).eval()
    decayed = [p for name, p in model.named_parameters() if p.dim() > 1]
    others = [p for name, p in model.named_parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    rows = read_arrow_folder(inputs["packs"]).to_pylist()
    order = data_order(len(rows), 4, 2, 5, STEPS)
    seen = []
    for step in range(1, STEPS + 1):
        batch = [rows[row] for row in order.rows[2 * step - 2 : 2 * step]]
        loss = mean_cross_entropy(model, batch)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        seen.append((float(loss.detach()), float(norm)))
    return seen, {name: value.numpy() for name, value in model.state_dict().items()}


def mean_cross_entropy(model: Any, batch: list[dict[str, Any]]) -> torch.Tensor:
    found = []
    for row in batch:
        for start, end in zip([0, *row["actual_seq_len"]], row["actual_seq_len"], strict=False):
            log_probs = model(torch.tensor([row["input_ids"][start:end]])).logits[0].log_softmax(-1)
            labels = row["labels"][start + 1 : end]
            found += [log_probs[i, label] for i, label in enumerate(labels) if label != -100]
    return -torch.stack(found).mean()


def test_the_rate_of_every_step_is_the_formulas(trained: Path) -> None:
    records = read_steps(trained / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    for record in records:
        expected = pytest.approx(rate(record["step"]), rel=1e-5, abs=1e-12)
        assert record["learning_rate"] == expected
    # By hand: 0, half, all; at the middle of the cosine half the way down.
    by_hand = [0.0, 1e-3, 2e-3, None, None, (HIGH + LOW) / 2]
    for record, value in zip(records, by_hand, strict=False):
        assert value is None or record["learning_rate"] == pytest.approx(value, rel=1e-5)


def test_losses_norms_and_weights_are_those_of_pytorchs_adamw(
    trained: Path, inputs: dict[str, Path]
) -> None:
    records = read_steps(trained / "metrics.jsonl")
    expected, weights = torch_steps(inputs)
    norms = [norm for _, norm in expected]
    assert max(norms) > CLIP > 0  # clipping had something to do
    for record, (loss, norm) in zip(records, expected, strict=True):
        assert record["loss"] == pytest.approx(loss, rel=1e-4), record["step"]
        assert record["grad_norm"] == pytest.approx(norm, rel=1e-3), record["step"]
    out = trained.parent / "export"
    export_of(trained, inputs["policy"], out)
    held = load_file(out / "model.safetensors")
    before = load_file(inputs["policy"] / "model.safetensors")
    for name, value in held.items():
        moved = np.abs(value - before[name]).max()
        assert moved > 0, name
        np.testing.assert_allclose(value, weights[name], rtol=0, atol=0.01 * moved, err_msg=name)


def export_of(trained: Path, policy: Path, out: Path) -> None:
    from pcl_reasoner.train.config import ExportConfig

    context = StageContext("export", out.parent / "quarantined.jsonl")
    export(ExportConfig(), {"checkpoint": trained, "policy": policy}, out, context)
