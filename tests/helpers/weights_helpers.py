"""Models and checkpoints of weights alone, made without a framework where that can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pcl_reasoner.weights.model_config import read_shape
from pcl_reasoner.weights.names import expected_shapes, mindformers_name
from pcl_reasoner.weights.stream import StoredTensor, digest, write_folder

WIDTHS = {"F32": 4, "BF16": 2, "F16": 2}
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 192,
    "vocab_size": 272,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def stored(data: bytes, dtype: str, shape: tuple[int, ...]) -> StoredTensor:
    return StoredTensor(dtype, shape, len(data), lambda: iter([data]))


def content(tensors: dict[str, StoredTensor]) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """What must be equal, bit by bit."""
    return {name: (one.dtype, one.shape, digest(one)) for name, one in tensors.items()}


def write_random(
    folder: Path, dtype: str = "BF16", limit: int = 1 << 40, **config: Any
) -> dict[str, StoredTensor]:
    """A Hugging Face folder of random bits: NaNs of every kind and subnormals among them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "tokenizer.json").write_text('{"a tokenizer": "copied as it is"}\n')
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 0]}\n')
    shape = read_shape(folder)
    assert shape is not None
    rng = np.random.default_rng(4)
    tensors = {
        name: stored(rng.bytes(int(np.prod(sizes)) * WIDTHS[dtype]), dtype, sizes)
        for name, sizes in expected_shapes(shape).items()
    }
    write_folder(folder, tensors, limit, "huggingface")
    return tensors


def renamed(tensors: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    return {mindformers_name(name): tensor for name, tensor in tensors.items()}
