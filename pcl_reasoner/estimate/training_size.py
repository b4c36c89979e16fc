"""Reads the settings that determine memory and hours from a MindFormers configuration.

    {"layers": 64, "hidden": 5120, "data": 4, "tensor": 8, "recomputed": [16, 16, 16, 16], …}

The source is the YAML that the recipe's train stage renders, so settings under the recipe's
``train.mindformers`` count too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from pcl_reasoner.rl.render import ROUND_STEP
from pcl_reasoner.train.layout import stage_layers

GIB = 2**30
_COMPUTE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_SELECTABLE = {"gate, activated": "feed_forward.w1.activation.silu", "product": "feed_forward.mul"}
"""Tensor that MindFormers can recompute alone -> the operator that computes it."""


@dataclass(frozen=True)
class Training:
    """Shape, layout and settings of one training.

    Args:
        layers: Layers of the complete model.
        hidden: Hidden size.
        heads: Attention heads.
        key_heads: Key-value heads.
        feed_forward: Width of the feed-forward part.
        vocabulary: Rows of the embedding and of the output weights.
        tied: Whether embedding and output weights are one matrix.
        biased: Whether queries, keys and values have biases.
        data: Data-parallel ranks.
        tensor: Tensor-parallel ranks.
        stages: Pipeline stages.
        stage_layers: Number of layers, per stage.
        row_tokens: Tokens per row.
        micro_rows: Rows per micro-batch of a rank.
        micro_batches: Micro-batches per step of a rank.
        compute_bytes: Bytes per number in matrix products.
        sequence_parallel: Whether tensor-parallel ranks split the residual stream by tokens.
        optimizer_shard: Whether data-parallel ranks shard parameters and moments.
        gradient_shard: Whether data-parallel ranks shard accumulated gradients, too.
        shard_threshold: Bytes below which a matrix is not sharded.
        recomputed: Number of layers, per stage, that the backward pass recomputes completely.
        selected: Names of single tensors that the remaining layers recompute.
        swap_attention: Whether the remaining layers swap attention's outputs to host memory.
        swap_optimizer: Whether moments are in host memory.
        chunk_tokens: Tokens per chunk of logits on a rank; None: no chunks.
        entropy: Whether entropies are computed.
        limit_bytes: Bytes of a device that MindSpore may take.
        by_rounds: Whether the gradients of several steps are added up before an update, as the
            stage ``rl`` does; a step is then a micro-step.
    """

    layers: int
    hidden: int
    heads: int
    key_heads: int
    feed_forward: int
    vocabulary: int
    tied: bool
    biased: bool
    data: int
    tensor: int
    stages: int
    stage_layers: tuple[int, ...]
    row_tokens: int
    micro_rows: int
    micro_batches: int
    compute_bytes: int
    sequence_parallel: bool
    optimizer_shard: bool
    gradient_shard: bool
    shard_threshold: int
    recomputed: tuple[int, ...]
    selected: frozenset[str]
    swap_attention: bool
    swap_optimizer: bool
    chunk_tokens: int | None
    entropy: bool
    limit_bytes: int
    by_rounds: bool = False

    @property
    def devices(self) -> int:
        """Number of ranks."""
        return self.data * self.tensor * self.stages

    @property
    def keys(self) -> int:
        """Width of the keys, which is also the width of the values."""
        return self.hidden // self.heads * self.key_heads

    @property
    def micro_tokens(self) -> int:
        """Tokens per micro-batch of a rank."""
        return self.micro_rows * self.row_tokens

    @property
    def global_rows(self) -> int:
        """Rows per step, over all ranks."""
        return self.micro_rows * self.micro_batches * self.data

    @property
    def sequence_parts(self) -> int:
        """Number of parts into which tensor-parallel ranks split the residual stream's tokens."""
        return self.tensor if self.sequence_parallel else 1

    def with_layout(self, data: int, tensor: int, stages: int) -> Training:
        """The same training in another layout: equally deep stages, no recomputed layers."""
        return replace(
            self,
            data=data,
            tensor=tensor,
            stages=stages,
            stage_layers=tuple(stage_layers(self.layers, stages)),
            micro_batches=self.global_rows // (data * self.micro_rows),
            recomputed=(0,) * stages,
        )


def read_training(config: Mapping[str, Any]) -> Training:
    """Read a rendered MindFormers configuration.

    Args:
        config: The configuration, as rendered by `pcl_reasoner/train/render.py`.
    """
    model, parallel = config["model"]["model_config"], config["parallel_config"]
    auto = config["parallel"]
    shard = auto.get("parallel_optimizer_config") or {}
    stages = parallel["pipeline_stage"]
    layers = tuple(stage_layers(model["num_layers"], stages, model.get("offset", 0)))
    recompute = config.get("recompute_config") or {}
    memory: str = config["context"]["max_device_memory"]
    swap = bool((config.get("swap_config") or {}).get("swap"))
    return Training(
        layers=model["num_layers"],
        hidden=model["hidden_size"],
        heads=model["num_heads"],
        key_heads=model["n_kv_heads"],
        feed_forward=model["intermediate_size"],
        vocabulary=model["vocab_size"],
        tied=bool(model.get("tie_word_embeddings")),
        biased=bool(model.get("qkv_has_bias")),
        data=parallel["data_parallel"],
        tensor=parallel["model_parallel"],
        stages=stages,
        stage_layers=layers,
        row_tokens=model["seq_length"],
        micro_rows=model["batch_size"],
        micro_batches=parallel["micro_batch_num"],
        compute_bytes=_COMPUTE_BYTES[compute_type(config)],
        sequence_parallel=bool(parallel["use_seq_parallel"]),
        optimizer_shard=bool(auto.get("enable_parallel_optimizer")),
        gradient_shard=bool(shard.get("gradient_accumulation_shard")),
        shard_threshold=int(shard.get("parallel_optimizer_threshold", 64)) * 1024,
        recomputed=recomputed_layers(recompute.get("recompute", False), layers, swap),
        selected=selected_tensors(recompute.get("select_recompute", False)),
        swap_attention=swap,
        swap_optimizer=bool(config["optimizer"].get("swap")),
        chunk_tokens=model.get("logits_chunk_tokens"),
        entropy=bool(model.get("entropy")),
        limit_bytes=round(float(memory.removesuffix("GB")) * GIB),  # MindSpore's GB is 2^30 bytes
        by_rounds=config["runner_wrapper"]["type"] == ROUND_STEP,
    )


def compute_type(config: Mapping[str, Any]) -> str:
    """The data type of matrix products: ``bfloat16``, ``float16`` or ``float32``."""
    found: str = config["model"]["model_config"]["compute_dtype"]
    return found


def recomputed_layers(
    setting: bool | int | list[int], layers: tuple[int, ...], swap: bool
) -> tuple[int, ...]:
    """Number of completely recomputed layers, per stage.

    With swapping on, MindFormers 1.8.0 reads a list as layer numbers, not as a count per stage.

    Args:
        setting: MindFormers' ``recompute``.
        layers: Layers of each stage.
        swap: Whether activations are swapped.

    Source: LayerSetting in mindformers/parallel_core/training_graph/transformer/utils.py.
    """
    if isinstance(setting, bool):
        return layers if setting else (0,) * len(layers)
    if isinstance(setting, int):
        return tuple(min(setting, count) for count in layers)
    if not swap:
        pairs = zip(setting, layers, strict=True)
        return tuple(min(int(recomputed), count) for recomputed, count in pairs)
    spans = [range(end - count, end) for end, count in zip(accumulate(layers), layers, strict=True)]
    return tuple(len(set(setting) & set(span)) for span in spans)


def selected_tensors(setting: bool | list[str]) -> frozenset[str]:
    """Tensors that MindFormers' ``select_recompute`` recomputes; True: all of ``_SELECTABLE``."""
    if isinstance(setting, bool):
        return frozenset(_SELECTABLE) if setting else frozenset()
    return frozenset(
        tensor
        for tensor, operator in _SELECTABLE.items()
        if any(re.fullmatch(pattern, operator) for pattern in setting)
    )
