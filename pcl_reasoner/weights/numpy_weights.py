"""Weights and shape of a Hugging Face folder, read by NumPy alone.

config.json                   {"model_type": "qwen2", "hidden_size": 128, …}
model.safetensors             or model.safetensors.index.json and its shards
generation_config.json        {"eos_token_id": [2, 0]}, optional
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.core.errors import StageError

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class Shape:
    """What a Qwen2 model's config.json says."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    tied: bool
    context: int
    """max_position_embeddings: the longest prompt and response together."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a model folder; an absent file is an empty one."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StageError(f"{path}: not valid JSON ({error}). Export the model again.") from error
    return value if isinstance(value, dict) else {}


def read_shape(folder: Path) -> Shape:
    """Read config.json.

    Raises:
        StageError: Not a Qwen2 model, or one with scaled or windowed attention.
    """
    path = folder / "config.json"
    config = read_json(path)
    kind = config.get("model_type", "nothing")
    if kind != "qwen2":
        raise StageError(
            f"{path}: model_type is {kind!r}, the embedded engine reads 'qwen2'. Sample with "
            "engine: server instead."
        )
    if config.get("rope_scaling") or config.get("use_sliding_window"):
        raise StageError(
            f"{path}: rope_scaling and use_sliding_window are not known to the embedded engine. "
            "Sample with engine: server instead."
        )
    heads = config["num_attention_heads"]
    return Shape(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        norm_eps=config.get("rms_norm_eps", 1e-6),
        rope_theta=config.get("rope_theta", 1e4),
        tied=bool(config.get("tie_word_embeddings", False)),
        context=config.get("max_position_embeddings", 32768),
    )


def end_tokens(folder: Path) -> list[int]:
    """Ids that end a response: generation_config.json's, else config.json's.

    Raises:
        StageError: Neither file names one.
    """
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        if value is not None:
            return [int(item) for item in (value if isinstance(value, list) else [value])]
    raise StageError(
        f"{folder}: neither generation_config.json nor config.json has eos_token_id, so no "
        "response could end. Add it: the id of the template's end-of-turn token."
    )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model: one, or the shards that the index names.

    Raises:
        StageError: There are none, or a shard is missing.
    """
    index = read_json(folder / "model.safetensors.index.json")
    names = sorted(set(index.get("weight_map", {}).values())) or ["model.safetensors"]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise StageError(
            f"{folder}: {', '.join(missing)} not found. The folder must hold model.safetensors, "
            "or model.safetensors.index.json with all its shards."
        )
    return [folder / name for name in names]


def read_weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """All tensors of a model, by name, as float32 (bfloat16 and float16 are widened)."""
    weights: dict[str, NDArray[np.float32]] = {}
    for path in weight_files(folder):
        weights.update(_read_safetensors(path))
    return weights


def _read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read one file: 8 bytes length, a JSON header, then the tensors' bytes.

    Read here because the library's NumPy form refuses bfloat16.
    """
    data = np.memmap(path, np.uint8, "r")
    start = 8 + int(data[:8].view("<u8")[0])
    header = json.loads(data[8:start].tobytes())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in _DTYPES:
            raise StageError(
                f"{path}: {name} is {entry['dtype']}, the embedded engine reads "
                f"{', '.join(_DTYPES)}. Export the model in one of these."
            )
        first, last = entry["data_offsets"]
        values = data[start + first : start + last].view(_DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view("<f4")
        tensors[name] = values.astype(np.float32).reshape(entry["shape"])
    return tensors
