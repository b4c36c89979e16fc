"""Writes a tiny Qwen2 with random weights as a Hugging Face folder."""

import json
from pathlib import Path

import numpy as np

from pcl_reasoner.synthetic.base_model import weight_shapes
from pcl_reasoner.weights.model_config import ModelShape

_SPREAD = 0.06


def write_policy(folder: Path, shape: ModelShape, seed: int) -> None:
    """Write config.json and model.safetensors; no tensor is constant, so that no error hides.

    Args:
        folder: A new folder.
        shape: The model's shape.
        seed: Seed of the weights.
    """
    from safetensors.numpy import save_file

    config = _config(shape)
    rng = np.random.default_rng(seed)
    weights = {}
    for name, size in weight_shapes(config):
        middle = 1.0 if name.endswith("norm.weight") else 0.0
        weights[name] = rng.normal(middle, _SPREAD, size).astype(np.float32)
    if shape.tie_word_embeddings:
        del weights["lm_head.weight"]
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def _config(shape: ModelShape) -> dict[str, object]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "num_hidden_layers": shape.num_layers,
        "hidden_size": shape.hidden_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.n_kv_heads,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.theta,
        "max_position_embeddings": shape.max_position_embedding,
        "tie_word_embeddings": shape.tie_word_embeddings,
        "eos_token_id": shape.eos_token_id,
        "pad_token_id": shape.pad_token_id,
        "torch_dtype": "float32",
    }
