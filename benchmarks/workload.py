"""What the benchmarks of training share: a model, samples, packed rows, and measured processes."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pcl_reasoner.core.schemas import PACKED_ROWS, SEGMENTS
from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.packing import accounting
from pcl_reasoner.pack.rows import plan_packing
from pcl_reasoner.train.worker import environment

QWEN_05B = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "tie_word_embeddings": True,
}
"""Qwen2.5-0.5B's shape, from its config.json."""
SMALL = {
    "vocab_size": 4096,
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1408,
    "tie_word_embeddings": True,
}
"""A model whose step two cores make in about a second."""


def write_policy(folder: Path, shape: Mapping[str, Any], seed: int = 0) -> Path:
    """A Hugging Face folder with drawn weights; biases and norms are not at 0 and 1 either."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        **shape,
        max_position_embeddings=32_768,
        rope_theta=1_000_000.0,
        rms_norm_eps=1e-6,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.normal_(0, 0.1)
            elif "norm" in name:
                value.uniform_(0.75, 1.25)
    model.save_pretrained(folder)
    return folder


def drawn_lengths(count: int, mean: float, longest: int, seed: int = 0) -> list[int]:
    """Log-normal lengths, as reasoning traces have: a few long ones hold most of the tokens."""
    drawn = np.random.default_rng(seed).lognormal(np.log(mean) - 0.32, 0.8, count)
    return np.clip(drawn, 8, longest).astype(int).tolist()


def samples_of(lengths: Sequence[int], vocabulary: int, words: int = 64, seed: int = 0) -> Any:
    """A table of samples; a quarter of each is prompt, and every third is right.

    Few words, some of them much more frequent: a few steps can learn that, and then p = exp(m)
    is not zero in float32.
    """
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    known = rng.choice(np.arange(1, vocabulary), words, replace=False)
    share = 1.0 / np.arange(1, words + 1) ** 2
    rows = []
    for index, length in enumerate(lengths):
        ids = rng.choice(known, length, p=share / share.sum()).tolist()
        prompt = max(1, length // 4)
        row = {"problem_id": f"p{index}", "sample_index": 0, "input_ids": ids, "length": length}
        row |= {"labels": [-100] * prompt + ids[prompt:], "reward": float(index % 3 == 0)}
        rows.append(row | {"pass_rate": 1 / 3, "advantage": (2.0, -1.0, -1.0)[index % 3] / 2**0.5})
    return pa.Table.from_pylist(rows, schema=SEGMENTS)


def write_packs(
    folder: Path, samples: Any, length: int, places: int, one_segment_per_row: bool
) -> Path:
    """Pack samples into a folder as the pack stage does."""
    folder.mkdir(parents=True)
    packing = plan_packing(samples, length, places, 0, 0, one_segment_per_row)
    write_arrow_folder(folder, PACKED_ROWS, packing.batches())
    text = json.dumps(accounting(packing.plan, places))
    (folder / "accounting.json").write_text(text, encoding="utf-8")
    return folder


def write_job(folder: Path, shape: Mapping[str, Any], config: Any) -> Path:
    """Weights and the rendered ``mindformers.yaml`` of a train stage that is not run as a stage.

    Args:
        folder: Exists.
        shape: Of the model.
        config: A TrainConfig.

    Returns:
        The weights under MindFormers' names.
    """
    from pcl_reasoner.train.render import render, to_yaml
    from pcl_reasoner.train.shape import shape_of
    from pcl_reasoner.weights.conversion import write_mindformers

    policy = write_policy(folder / "policy", shape)
    write_mindformers(policy, folder / "model.safetensors")
    paths = {"packs": "packs", "policy": "policy", "metrics": "m.jsonl", "output_dir": "work"}
    text = to_yaml(render(config, shape_of(config, policy), paths))
    (folder / "mindformers.yaml").write_text(text, encoding="utf-8")
    return (folder / "model.safetensors").resolve()


def measured(arguments: Sequence[str]) -> tuple[float, float]:
    """Run this Python with the arguments: seconds, and the peak memory of its processes in GiB.

    Raises:
        SystemExit: It failed.
    """
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], env=environment({}))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)}: exit code {process.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss / 2**20


def machine(*packages: str) -> str:
    """Cores, their load, and the packages' versions, for the head of a measurement."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"{cores} cores ({platform.machine()}), load {load:.1f} at the start; {versions}"
