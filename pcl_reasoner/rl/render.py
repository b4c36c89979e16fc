"""Turns a configuration of MindFormers' Trainer for packed rows into one for rounds.

Only what a round needs differs: the loader waits for rows, the step accumulates gradients, metrics
and checkpoints belong to rounds, and the learning rate counts updates.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.plan import PlannedStage
from pcl_reasoner.train.render import WORK, merge, render, render_for_plan
from pcl_reasoner.train.shape import shape_of

ROUND_STEP, ROUND_LOADER = "PclRoundStepCell", "PclRoundLoader"
"""Names under which MindFormers finds the classes of trainer/round_step.py and round_rows.py."""
ROUNDS, WEIGHTS = "rounds", "work/weights"
"""Folders of the rounds and of the ranks' slices, relative to the stage's folder."""


def planned_yaml(planned: PlannedStage) -> dict[str, Any]:
    """Render the configuration that a planned stage ``train`` or ``rl`` would give MindFormers."""
    config = planned.spec.config
    if isinstance(config, RlConfig):
        return round_yaml(config, planned.inputs["policy"].path, planned.partial)
    return render_for_plan(planned)


def round_yaml(
    config: RlConfig, policy: Path, folder: Path, start: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Render the configuration of a stage ``rl``.

    Args:
        config: The stage's settings.
        policy: The Hugging Face folder that is trained.
        folder: The working directory of the training process.
        start: Where training starts, from `starting_paths`; None: from the policy.
    """
    paths = {
        "packs": ROUNDS,
        "policy": os.path.relpath(policy, folder),
        "metrics": "metrics.jsonl",
        "output_dir": WORK,
        **(start or {}),
    }
    training = config.training
    value = with_rounds(render(training, shape_of(training, policy), paths), config)
    # Once more: rounds have replaced some sections.
    return merge(value, config.mindformers)


def with_rounds(value: dict[str, Any], config: RlConfig) -> dict[str, Any]:
    """Return the configuration for rounds.

    Args:
        value: The result of train/render.py for ``config.training``.
        config: The stage's settings.
    """
    found = {**value, "lr_schedule": _schedule(config), "callbacks": _callbacks(value, config)}
    found["runner_wrapper"] = {"type": ROUND_STEP, "max_grad_norm": config.clip_grad}
    model = value["model"]["model_config"] | {"mismatch": True}
    found["model"] = {**value["model"], "model_config": model}
    found["train_dataset"] = {**value["train_dataset"], "data_loader": _loader(value, config)}
    found["train_dataset_task"] = {
        **value["train_dataset_task"],
        "dataset_config": found["train_dataset"],
    }
    return found


def _loader(value: dict[str, Any], config: RlConfig) -> dict[str, Any]:
    before = value["train_dataset"]["data_loader"]
    kept = ("create_compressed_eod_mask", "max_segments", "gradient_scale", "use_broadcast_data")
    return {
        "type": ROUND_LOADER,
        "rounds": ROUNDS,
        "rows": config.rows,
        "max_micro_steps": config.max_micro_steps,
        "seq_length": config.row_tokens,
        **{key: before[key] for key in kept},
    }


def _schedule(config: RlConfig) -> dict[str, Any]:
    if config.schedule == "constant":
        schedule = {"type": "ConstantWarmUpLR", "learning_rate": config.learning_rate}
    else:
        schedule = {
            "type": "CosineWithWarmUpLR",
            "learning_rate": config.learning_rate,
            "lr_end": config.learning_rate_end,
        }
    # Without a number of steps MindFormers would count micro-steps.
    steps = {"warmup_steps": config.warmup_rounds, "total_steps": config.max_rounds}
    return schedule | steps


def _callbacks(value: dict[str, Any], config: RlConfig) -> list[dict[str, Any]]:
    found = []
    for callback in value["callbacks"]:
        if callback["type"] == "PclMetrics":
            found.append({**callback, "type": "PclRounds", "rounds": ROUNDS, "weights": WEIGHTS})
        elif callback["type"] == "CheckpointMonitor":
            every = {"rounds": ROUNDS, "checkpoint_rounds": config.checkpoint_rounds}
            found.append({**callback, **every})
        else:
            found.append(callback)
    return found
