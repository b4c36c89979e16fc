"""Reads a model's shape (by MindFormers' names) and its end tokens from the model's folder.

{"num_layers": 28, "hidden_size": 3584, "num_heads": 28, "n_kv_heads": 4, …}
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.prompt.model_files import read_json

ARCHITECTURE = "qwen2"


class ModelShape(StageConfig):
    """A Qwen2 model's shape, by MindFormers' names; read from config.json."""

    num_layers: int = Field(gt=0)
    """Decoder layers."""
    hidden_size: int = Field(gt=0)
    """Width of the hidden states."""
    num_heads: int = Field(gt=0)
    """Attention heads."""
    n_kv_heads: int = Field(gt=0)
    """Heads of keys and values (grouped-query attention)."""
    intermediate_size: int = Field(gt=0)
    """Width of the feed-forward layers."""
    vocab_size: int = Field(gt=0)
    """Rows of the embedding."""
    rms_norm_eps: float = Field(1e-5, gt=0)
    """Epsilon of RMSNorm."""
    theta: float = Field(1_000_000.0, gt=0)
    """Base of the rotary embedding."""
    max_position_embedding: int = Field(131072, gt=0)
    """Longest sequence, in tokens."""
    tie_word_embeddings: bool = False
    """True if the output layer uses the weights of the embedding."""
    eos_token_id: int = 151643
    """Token that ends a response."""
    pad_token_id: int = 151643
    """Token that fills the end of a packed row."""

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_heads


def read_shape(policy: Path) -> ModelShape | None:
    """Read the model's shape from the config.json of a folder of weights.

    Args:
        policy: A Hugging Face folder.

    Returns:
        The shape; None if there is no config.json yet.

    Raises:
        StageError: The file is for another architecture, lacks a key, or cannot be read.
    """
    path = policy / "config.json"
    if not path.is_file():
        return None
    value = read_json(path)
    kind = value.get("model_type")
    if kind != ARCHITECTURE:
        raise StageError(
            f"{path}: model_type is {kind!r}, expected {ARCHITECTURE!r}: the trainer "
            "maps Qwen2 weights onto MindFormers' LlamaForCausalLM."
        )
    try:
        return ModelShape(**_by_our_names(value))
    except KeyError as error:
        raise StageError(
            f"{path}: has no {error.args[0]}, which every Qwen2 model has. Use the config.json "
            "that was published with the weights."
        ) from error


def _by_our_names(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "num_layers": value["num_hidden_layers"],
        "hidden_size": value["hidden_size"],
        "num_heads": value["num_attention_heads"],
        "n_kv_heads": value.get("num_key_value_heads", value["num_attention_heads"]),
        "intermediate_size": value["intermediate_size"],
        "vocab_size": value["vocab_size"],
        "rms_norm_eps": value["rms_norm_eps"],
        "theta": value.get("rope_theta", 10000.0),
        "max_position_embedding": value["max_position_embeddings"],
        "tie_word_embeddings": value.get("tie_word_embeddings", False),
        "eos_token_id": _first(value.get("eos_token_id"), 151643),
        "pad_token_id": _first(value.get("pad_token_id"), 151643),
    }


def _first(value: Any, default: int) -> int:
    found = value[0] if isinstance(value, list) and value else value
    return default if found is None or isinstance(found, list) else int(found)


def end_tokens(folder: Path) -> list[int]:
    """Read the token ids that end a response from generation_config.json, or else config.json.

    Raises:
        StageError: Neither file has an ``eos_token_id``.
    """
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        if value is not None:
            return [int(item) for item in (value if isinstance(value, list) else [value])]
    raise StageError(
        f"{folder}: neither generation_config.json nor config.json has eos_token_id, so no "
        "response could end. Add it: the id of the template's end-of-turn token."
    )
