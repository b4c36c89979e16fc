"""A tiny model, packed rows by hand, and the same loss by transformers and PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from pcl_reasoner.core.schemas import PACKED_ROWS, SEGMENTS
from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.packing import accounting
from pcl_reasoner.pack.rows import plan_packing
from pcl_reasoner.synthetic import base_model
from pcl_reasoner.train.config import TrainConfig

TEXTS = ["user assistant <think> 12-3=9 9-2=7 </think> <answer> \\boxed{7} </answer>"]
VOCABULARY = 272
LENGTH, PLACES = 32, 4


def train_config(**changes: Any) -> TrainConfig:
    """Settings for the tiny model on a CPU."""
    settings: dict[str, Any] = {
        "loss": "sft",
        "seed": 5,
        "epochs": 1,
        "learning_rate": 1e-2,
        "learning_rate_end": 1e-3,
        "warmup_ratio": 0.0,
        "global_batch_size": 2,
        "micro_batch_size": max(1, 2 // int(changes.get("data_parallel", 1))),
        "seq_length": LENGTH,
        "max_segments": PLACES,
        "device": "CPU",
        "precision": "float32",
        "compressed_mask": False,
    }
    return TrainConfig(**settings | changes)


def write_policy(folder: Path, tied: bool = False, layers: int = 1, hidden: int = 64) -> Path:
    """A Hugging Face folder with random weights far from uniform answers."""
    base_model.write_model_folder(folder, TEXTS, VOCABULARY, hidden=hidden, layers=layers, seed=3)
    if tied:
        path = folder / "config.json"
        config = json.loads(path.read_text()) | {"tie_word_embeddings": True}
        path.write_text(json.dumps(config))
    # transformers' own file, so that a tied model has no lm_head.weight and biases are not zero.
    model = AutoModelForCausalLM.from_pretrained(folder)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.copy_(torch.randn(value.shape, generator=generator) * 0.5)
            elif "norm" in name:
                value.copy_(1 + torch.rand(value.shape, generator=generator) - 0.5)
            else:
                value.mul_(3)
    model.save_pretrained(folder)
    return folder


def samples_of(sizes: list[int], seed: int = 0, without_advantage: tuple[int, ...] = ()) -> Any:
    """Samples of the given sizes, as tokenize writes them; rewards 1, 0, 0.25, 1, 0, … in turn."""
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    samples = []
    for index, size in enumerate(sizes):
        ids = rng.integers(3, VOCABULARY, size).tolist()
        prompt = 1 + index % 3
        samples.append(
            {
                "problem_id": f"p{index}",
                "sample_index": 0,
                "input_ids": ids,
                "labels": [-100] * prompt + ids[prompt:],
                "length": size,
                "reward": (1.0, 0.0, 0.25)[index % 3],
                "pass_rate": 0.5,
                "advantage": None if index in without_advantage else (1.5, -0.5, -1.0)[index % 3],
            }
        )
    return pa.Table.from_pylist(samples, schema=SEGMENTS)


def write_samples(folder: Path, sizes: list[int]) -> Path:
    """A tokenized folder."""
    folder.mkdir(parents=True)
    write_arrow_folder(folder, SEGMENTS, samples_of(sizes).to_batches())
    (folder / "meta.json").write_text(json.dumps({"pad_token_id": 0}))
    return folder


def write_packs(
    folder: Path, sizes: list[int], seed: int = 0, without_advantage: tuple[int, ...] = ()
) -> Path:
    """Those samples, packed to LENGTH."""
    folder.mkdir(parents=True)
    table = samples_of(sizes, seed, without_advantage)
    packing = plan_packing(table, LENGTH, PLACES, seed, pad_token_id=0)
    write_arrow_folder(folder, PACKED_ROWS, packing.batches())
    (folder / "accounting.json").write_text(json.dumps(accounting(packing.plan, PLACES)))
    return folder


def packed_row(ends: list[int], length: int, seed: int = 0) -> dict[str, Any]:
    """A packed row of drawn tokens: each segment's first three are its prompt."""
    drawn = np.random.default_rng(seed).integers(3, VOCABULARY, length)
    segments = np.searchsorted(ends, np.arange(length), side="right")
    starts = np.array([0, *ends])[segments]
    trained = (np.arange(length) - starts >= 3) & (segments < len(ends))
    return {
        "input_ids": np.where(segments < len(ends), drawn, 0),
        "labels": np.where(trained, drawn, -100),
        "actual_seq_len": ends,
        "segment_ids": segments,
        "rewards": [1.0, 0.0, 0.25, 1.0][: len(ends)],
    }


def torch_losses(policy: Path, rows: list[dict[str, Any]]) -> dict[str, float]:
    """SFT and OPG of a global batch by transformers, each segment on its own, in float64."""
    model = AutoModelForCausalLM.from_pretrained(policy, torch_dtype=torch.float64).eval()
    tokens, of_segments = [], []
    for row in rows:
        starts = [0, *row["actual_seq_len"][:-1]]
        for start, end, reward in zip(starts, row["actual_seq_len"], row["rewards"], strict=True):
            ids = torch.tensor([row["input_ids"][start:end]])
            labels = torch.tensor(row["labels"][start:end])
            with torch.no_grad():
                log_probs = model(ids).logits[0].log_softmax(-1)
            places = [i for i in range(1, end - start) if labels[i] != -100]
            if not places:
                continue
            found = torch.stack([log_probs[i - 1, labels[i]] for i in places])
            tokens.append(found)
            p = found.mean().exp()
            of_segments.append(reward * (1 - p) + (1 - reward) * p)
    return {
        "sft": float(-torch.cat(tokens).mean()),
        "opg": float(torch.stack(of_segments).mean()),
    }
