"""Trains a small model for five steps with MindFormers' Trainer, in three parallel layouts.

Also trains two layers of a 32B model, to measure time and memory.

    one_device        1 rank
    data_parallel     DP 2
    tensor_pipeline   TP 2 x PP 2

All layouts train on the same rows in the same order. So their losses and gradient norms must be
equal within a tolerance.
"""

import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.hardware_check import small
from pcl_reasoner.hardware_check.outcome import Outcome, Setting, against_figures, compare
from pcl_reasoner.hosts.msrun import training_environment
from pcl_reasoner.serving.serve_command import free_port
from pcl_reasoner.train import worker
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.render import render, to_yaml
from pcl_reasoner.train.shape import shape_of
from pcl_reasoner.train.sizes import gradient_scale
from pcl_reasoner.weights.model_config import ModelShape

SIZES = tuple(8 + (37 * index) % 71 for index in range(40))
"""Tokens per response: 8 to 78."""
STEPS, BATCH = 5, 4

TOLERANCES = {
    "float32": {"loss": 1e-5, "grad_norm": 1e-4},
    "bfloat16": {"loss": 5e-3, "grad_norm": 2e-2},
}
"""Largest allowed errors against the CPU; sources: docs/cluster/hardware_check.md."""

TRAINER = "pcl_reasoner.hardware_check.trainer"

LAYERS_SHAPE = ModelShape(
    num_layers=2,
    hidden_size=5120,
    num_heads=40,
    n_kv_heads=8,
    intermediate_size=27648,
    # An eighth of 152 064: a rank's part at tensor parallelism 8.
    vocab_size=19008,
    eos_token_id=1,
    pad_token_id=0,
)
"""The shape of Qwen2.5-32B, except for the number of layers and the vocabulary."""
LAYERS_LENGTH, LAYERS_STEPS = 4096, 8


def settings(
    setting: Setting, layout: tuple[int, int, int] = (1, 1, 1), batch: int = BATCH, **changes: Any
) -> TrainConfig:
    """The settings of the small model's training.

    Args:
        setting: The device and the compute type.
        layout: Data-, tensor- and pipeline-parallel sizes.
        batch: Rows per step.
        changes: Further settings; they override the values here.
    """
    data, tensor, pipeline = layout
    values: dict[str, Any] = {
        "loss": "opg",
        "seed": 0,
        "epochs": 2,
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        "learning_rate_end": 1e-4,
        "warmup_ratio": 0.0,
        "global_batch_size": batch,
        "micro_batch_size": 1 if pipeline > 1 else batch // data,
        "seq_length": small.LENGTH,
        "max_segments": small.PLACES,
        "checkpoint_steps": STEPS,
        "keep_checkpoints": 1,
        "device": setting.device,
        "precision": setting.precision,
        "compressed_mask": False,
        "data_parallel": data,
        "model_parallel": tensor,
        "pipeline_stage": pipeline,
    }
    return TrainConfig(**values | changes)


def small_training(setting: Setting, folder: Path, layout: tuple[int, int, int]) -> Outcome:
    """Train the small model and compare its steps with the CPU's reference values."""
    config = settings(setting, layout)
    found: dict[str, Any] = {"weights": small.write_policy(folder / "policy")}
    rows = small.write_packs(folder / "packs", small.samples(SIZES))
    start = worker.starting_point(
        folder / "policy", folder / "work", config.devices, None, setting.device == "CPU"
    )
    records = train(config, folder, rows, start)
    found |= {key: step_values(config, records, key) for key in ("loss", "grad_norm")}
    measured = {"ranks": config.devices, "rows": rows, **_measured(records)}
    checks = against_figures(found, setting.figures, TOLERANCES[setting.precision])
    return Outcome(checks, measured, found if config.devices == 1 else None)


one_device = partial(small_training, layout=(1, 1, 1))
"""Runs five steps on one rank. With ``--write-figures`` the results become reference values."""
data_parallel = partial(small_training, layout=(2, 1, 1))
"""Runs five steps on two ranks, each with half of every batch."""
tensor_pipeline = partial(small_training, layout=(1, 2, 2))
"""Runs five steps with tensor and pipeline parallelism, but without data parallelism.

With data parallelism MindSpore cannot cut a dense mask into micro-batches. A compressed mask needs
rows of 2 048 tokens, for which there are no reference values of training."""


def step_values(config: TrainConfig, records: list[dict[str, Any]], key: str) -> list[float]:
    """Return the loss or the gradient norm (``key``) of the global batch, one number per step.

    With a pipeline only the ranks of the last stage record the loss. Their value is the sum over
    micro-batches, multiplied by the loader's gradient scale.
    """
    last = records[-(len(records) // config.pipeline_stage) :]
    means = [statistics.fmean(step) for step in zip(*(rank[key] for rank in last), strict=True)]
    if key == "loss" and config.pipeline_stage > 1:
        return [mean / gradient_scale(config) for mean in means]
    return means


def train(
    config: TrainConfig, folder: Path, rows: int, start: dict[str, str], shape: Any = None
) -> list[dict[str, Any]]:
    """Run MindFormers' Trainer in separate processes.

    Args:
        config: The settings.
        folder: A folder with ``packs`` and, unless a shape is given, ``policy``.
        rows: Number of packed rows.
        start: The result of ``worker.starting_point``.
        shape: The model's shape; None for the policy's shape.

    Returns:
        The records of all ranks, rank 0 first.
    """
    value = rendered(config, shape or shape_of(config, folder / "policy"), rows, start)
    (folder / "mindformers.yaml").write_text(to_yaml(value), encoding="utf-8")
    words, log_dir = ["mindformers.yaml"], "work/msrun_log"
    arguments = worker.command(words, config.devices, free_port(), log_dir, program=TRAINER)
    env = training_environment(folder, config.devices, config.devices)
    log, metrics = folder / "train.log", folder / "metrics.jsonl"
    worker.run_worker(arguments, folder, log, metrics, STEPS, env, NoProgress())
    files = [folder / f"rank_{rank}.json" for rank in range(config.devices)]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def rendered(
    config: TrainConfig, shape: ModelShape, rows: int, start: dict[str, str]
) -> dict[str, Any]:
    """Render the MindFormers configuration, with our callback in place of writing checkpoints.

    Nothing uses the trained weights, and writing a large model's weights takes long.
    """
    paths = {
        "packs": "packs",
        "policy": "policy",
        "metrics": "metrics.jsonl",
        "output_dir": "work",
        "row_count": str(rows),
        **start,
    }
    value = render(config, shape, paths)
    others = [one for one in value["callbacks"] if one["type"] != "CheckpointMonitor"]
    value["callbacks"] = [*others, {"type": "HardwareSteps", "path": "."}]
    return value


def _measured(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first and median step time, on each step's slowest rank, and the peak memory."""
    first, *others = (max(step) for step in zip(*(one["seconds"] for one in records), strict=True))
    return {
        "first_step_seconds": round(first, 3),
        "step_seconds": round(statistics.median(others), 4),
        "peak_memory_bytes": max(one["peak_memory"] for one in records),
    }


def layers(setting: Setting, folder: Path) -> Outcome:
    """Train two layers at full width from random weights, with one row of 4 096 tokens per step."""
    length, hidden = LAYERS_LENGTH, LAYERS_SHAPE.hidden_size
    table = small.samples([length // 4, length // 2, length // 8] * LAYERS_STEPS)
    rows = small.write_packs(folder / "packs", table, length)
    config = settings(
        setting, batch=1, max_steps=LAYERS_STEPS, seq_length=length, compressed_mask=True
    )
    records = train(config, folder, rows, {"start": ""}, LAYERS_SHAPE)
    measured = {"tokens_per_row": length, "hidden": hidden, **_measured(records)}
    measured["tokens_per_second"] = round(length / measured["step_seconds"], 1)
    # OPG's loss is between 0 and 1.
    checks = [compare("the loss is between 0 and 1", loss, 0.5, 1.0) for loss in records[0]["loss"]]
    return Outcome(checks, measured)
