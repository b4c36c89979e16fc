"""The model's shape: from the weights' own config.json, held against what the recipe says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pcl_reasoner.errors import StageError
from pcl_reasoner.plan import PlannedStage
from pcl_reasoner.train.config import ModelShape, TrainConfig


def read_shape(policy: Path) -> ModelShape | None:
    """The model's shape from its own config.json; None where there is no such file yet."""
    path = policy / "config.json"
    if not path.is_file():
        return None
    value = json.loads(path.read_text(encoding="utf-8"))
    if value.get("model_type") != "qwen2":
        raise StageError(
            f"{path}: model_type is {value.get('model_type')!r}, expected 'qwen2': the trainer "
            "maps Qwen2 weights onto MindFormers' LlamaForCausalLM."
        )
    return ModelShape(
        num_layers=value["num_hidden_layers"],
        hidden_size=value["hidden_size"],
        num_heads=value["num_attention_heads"],
        n_kv_heads=value.get("num_key_value_heads", value["num_attention_heads"]),
        intermediate_size=value["intermediate_size"],
        vocab_size=value["vocab_size"],
        rms_norm_eps=value["rms_norm_eps"],
        theta=value.get("rope_theta", 10000.0),
        max_position_embedding=value["max_position_embeddings"],
        tie_word_embeddings=value.get("tie_word_embeddings", False),
        eos_token_id=_first(value.get("eos_token_id"), 151643),
        pad_token_id=_first(value.get("pad_token_id"), 151643),
    )


def _first(value: Any, default: int) -> int:
    found = value[0] if isinstance(value, list) and value else value
    return default if found is None or isinstance(found, list) else int(found)


def shape_of(config: TrainConfig, policy: Path) -> ModelShape:
    """The shape to train: the weights' own; a recipe that contradicts it is an error.

    Raises:
        StageError: The recipe contradicts the weights, or neither says the shape.
    """
    found = read_shape(policy)
    if found is None and config.model is None:
        raise StageError(
            f"{policy}: no config.json, and the recipe gives no train.model: the model's shape "
            "is unknown. Give the folder of the weights."
        )
    if found is not None and config.model is not None:
        given = config.model.model_dump(exclude_unset=True)
        own = found.model_dump()
        wrong = [
            f"{key} is {value} in the recipe, {own[key]} in the weights"
            for key, value in given.items()
            if own[key] != value
        ]
        if wrong:
            raise StageError(f"{policy}/config.json: {'; '.join(wrong)}. Mend train.model.")
    shape = found or config.model
    assert shape is not None
    problems = config.layout_problems(shape)
    if problems:
        raise StageError(f"{policy}/config.json: {'; '.join(problems)}. Change the launch file.")
    return shape


def planned_shape(planned: PlannedStage, config: TrainConfig, policy: Path) -> ModelShape:
    """The weights' shape; before they are there, the recipe's, or a base model's that is there."""
    if read_shape(policy) is None and config.model is None:
        raise StageError(
            f"stage {planned.title}: {policy} has no config.json yet, so the model's shape is "
            "unknown. Run the stages before it first, or give train.model in the recipe."
        )
    return shape_of(config, policy)
