"""Scales a training's settings down to a few ranks and a tiny model.

    data 4 x tensor 8 x pipeline 4, 64 layers  ->  data 2 x tensor 2 x pipeline 2, 2 layers

A kind of parallelism that the layout has stays at least 2, and several micro-batches stay several.
All flags of the layout stay: optimizer sharding, sequence parallelism, recomputation, swapping,
kind of mask.
"""

import math
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.stopping import Stop
from pcl_reasoner.weights.model_config import ModelShape

_AXES = ("data_parallel", "model_parallel", "pipeline_stage")
_HEAD = 16
_VOCABULARY = 512
_LEARNING_RATE = 1e-4
_COMPRESSED_TOKENS, _DENSE_TOKENS = 2048, 256
"""Tokens per row. MindFormers refuses a compressed mask for rows under 2 048 tokens."""
_MOST_ROWS_PER_MICRO_BATCH = 2
_MICRO_BATCHES = 2
_MOST_SEGMENTS = 16
"""Limit on the segments per row: with a compressed mask, the graph grows with it."""


@dataclass(frozen=True)
class Scaled:
    """A training's settings at the size of a rehearsal.

    Args:
        config: The settings; the layout is the scaled one.
        changed: Settings that differ from the recipe's, as ``key: before -> now``.
        rounds: The stage ``rl``, if its training is rehearsed; a global batch of ``config`` is then
            a micro-step, and a step is a round.
        micro_steps: Most micro-steps per update.
    """

    config: TrainConfig
    changed: list[str]
    rounds: RlConfig | None = None
    micro_steps: int = 1

    @property
    def shape(self) -> ModelShape:
        """The tiny model's shape."""
        assert self.config.model is not None
        return self.config.model

    def one_process(self) -> TrainConfig:
        """Return the same settings without parallelism: all rows of an update in one batch."""
        native = self.config.mindformers
        runner = native.get("runner_config") or {}
        rows = self.config.global_batch_size * self.micro_steps
        return self.config.model_copy(
            update={
                "data_parallel": 1,
                "model_parallel": 1,
                "pipeline_stage": 1,
                "sequence_parallel": False,
                "optimizer_shard": False,
                "recompute": False,
                "select_recompute": False,
                "swap": False,
                "swap_optimizer": False,
                "parallel_speed_up_json": "",
                "global_batch_size": rows,
                "micro_batch_size": rows,
                # Without ranks MindSpore compiles a graph that reads a device's queue twice.
                "mindformers": native | {"runner_config": runner | {"sink_mode": False}},
            }
        )


def scale(config: TrainConfig, shape: ModelShape | None, ranks: int, steps: int = 3) -> Scaled:
    """Scale a train stage's settings down.

    Args:
        config: The recipe's settings, for Ascend.
        shape: The recipe's model, if known; its norm, rotary base and tied embeddings are kept.
        ranks: Largest number of ranks.
        steps: Optimizer steps.

    Raises:
        InputError: The settings are for a CPU, or the layout does not fit into ``ranks``.
    """
    if config.device != "Ascend":
        raise InputError(
            f"device is {config.device}: only a cluster's layout can be rehearsed. Give the launch "
            "file of a cluster, e.g. --launch atlas_910c_16x8."
        )
    layout = _layout(config, ranks)
    updates = {
        **layout,
        **_batch(config, layout),
        **_recomputed(config, layout["pipeline_stage"]),
        "model": _shape(shape, layout),
        "seq_length": _COMPRESSED_TOKENS if config.compressed_mask else _DENSE_TOKENS,
        "max_segments": min(config.max_segments, _MOST_SEGMENTS),
        # Large enough to see a missing update.
        "learning_rate": _LEARNING_RATE,
        "learning_rate_end": _LEARNING_RATE,
        "warmup_ratio": 0.0,
        "epochs": 1,
        "max_steps": steps,
        "checkpoint_steps": 1,
        "keep_checkpoints": steps,
        "stop_if": Stop(),
        "mindformers": _native(config),
    }
    before = config.model_dump() | {"model": shape.model_dump() if shape else None}
    found = TrainConfig.model_validate(config.model_dump() | _plain(updates))
    return Scaled(found, list(_changes(before, found.model_dump())))


def _layout(config: TrainConfig, ranks: int) -> dict[str, int]:
    """Return the scaled layout: 2 of everything, then doubled while it fits into the ranks."""
    whole = {axis: getattr(config, axis) for axis in _AXES}
    found = {axis: min(2, size) for axis, size in whole.items()}
    if math.prod(found.values()) > ranks:
        raise InputError(
            f"--ranks {ranks}: the smallest rehearsal of this layout needs "
            f"{math.prod(found.values())} ranks. Give --ranks {math.prod(found.values())}."
        )
    for axis in reversed(_AXES):
        while found[axis] * 2 <= whole[axis] and math.prod(found.values()) * 2 <= ranks:
            found[axis] *= 2
    return found


def _batch(config: TrainConfig, layout: dict[str, int]) -> dict[str, Any]:
    """Return rows per micro-batch and per step."""
    rows = min(config.micro_batch_size, _MOST_ROWS_PER_MICRO_BATCH)
    micro_batches = min(config.micro_batch_num, max(_MICRO_BATCHES, layout["pipeline_stage"]))
    total = rows * micro_batches * layout["data_parallel"]
    return {"micro_batch_size": rows, "global_batch_size": total}


def _layers(stages: int) -> int:
    """Return the layers of each stage; at least two layers in all."""
    return 2 if stages == 1 else 1


def _recomputed(config: TrainConfig, stages: int) -> dict[str, Any]:
    """Return ``recompute`` for the few layers of each stage."""
    found = config.recompute
    if isinstance(found, bool):
        return {}
    if isinstance(found, int):
        return {"recompute": min(found, _layers(stages))}
    return {"recompute": [min(count, _layers(stages)) for count in found[:stages]]}


def _shape(shape: ModelShape | None, layout: dict[str, int]) -> dict[str, Any]:
    tensor, stages = layout["model_parallel"], layout["pipeline_stage"]
    kv_heads = max(2, tensor)
    kept = (
        shape.model_dump(include={"rms_norm_eps", "theta", "tie_word_embeddings"}) if shape else {}
    )
    return {
        **kept,
        "num_layers": stages * _layers(stages),
        "hidden_size": 2 * kv_heads * _HEAD,
        "num_heads": 2 * kv_heads,
        "n_kv_heads": kv_heads,
        "intermediate_size": 96 * tensor,
        "vocab_size": _VOCABULARY,
        "max_position_embedding": _COMPRESSED_TOKENS,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


def _native(config: TrainConfig) -> dict[str, Any]:
    """Return the recipe's native keys without sizes; every parameter is big enough to be sharded.

    Below its threshold in KB, a parameter is not sharded, and all of these are small.
    """
    native = dict(config.mindformers)
    native.pop("model", None)
    parallel = dict(native.get("parallel") or {})
    optimizer = dict(parallel.get("parallel_optimizer_config") or {})
    optimizer["parallel_optimizer_threshold"] = 0
    return native | {"parallel": parallel | {"parallel_optimizer_config": optimizer}}


def _plain(updates: dict[str, Any]) -> dict[str, Any]:
    stop = updates.pop("stop_if")
    return updates | {"stop_if": stop.model_dump()}


def _changes(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> Any:
    """Yield each setting that differs as ``key: before -> now``."""
    for key, value in now.items():
        old = before.get(key) if before else None
        if isinstance(value, dict) and isinstance(old, dict):
            yield from _changes(old, value, f"{prefix}{key}.")
        elif old != value:
            yield f"{prefix}{key}: {old} -> {value}"
