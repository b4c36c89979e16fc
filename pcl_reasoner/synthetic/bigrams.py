"""A model that measures perplexity, made by counting: the next token depends on the last one only.

    count(Monday, loses) = 40 of 100, smoothed by 0.01 per token of V = 512
    -> log π(loses | Monday) = ln((40 + 0.01) / (100 + 5.12)) = −0.97

It is a Hugging Face folder of Qwen2 whose layer adds nothing: the embedding is the unit matrix,
attention and feed-forward part are 0. RMSNorm turns a unit vector into sqrt(V) times itself, by
which the output matrix, the table of log-probs, is divided.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.core.artifact import write_json
from pcl_reasoner.synthetic.base_model import Weights, model_config, weight_shapes

SMOOTHING = 0.01
"""Added to the count of every pair, so that none is impossible."""


def write_scorer(folder: Path, model: Path, texts: Sequence[str]) -> None:
    """Write the model's folder.

    Args:
        folder: The new folder.
        model: A Hugging Face folder whose tokenizer and template it has.
        texts: The texts that are counted.
    """
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer

    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(model / name, folder / name)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    size = -(-tokenizer.get_vocab_size() // 64) * 64
    config = model_config(size, size, 1) | {"intermediate_size": 32}
    log_probs = log_probs_of(tokenizer, texts, size)
    save_file(_weights(config, log_probs), folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", config)


def log_probs_of(tokenizer: Any, texts: Sequence[str], size: int) -> NDArray[np.float64]:
    """Return log π(next | last) by smoothed counts; [size, size], a row per last token."""
    counts = np.full((size, size), SMOOTHING)
    for encoded in tokenizer.encode_batch(list(texts), add_special_tokens=False):
        ids = np.array(encoded.ids, np.int64)
        np.add.at(counts, (ids[:-1], ids[1:]), 1.0)
    found: NDArray[np.float64] = np.log(counts / counts.sum(axis=1, keepdims=True))
    return found


def _weights(config: dict[str, Any], log_probs: NDArray[np.float64]) -> Weights:
    size = config["vocab_size"]
    weights = {
        name: np.full(shape, float(name.endswith("norm.weight")), np.float32)
        for name, shape in weight_shapes(config)
    }
    weights["model.embed_tokens.weight"] = np.eye(size, dtype=np.float32)
    scale = np.sqrt(1.0 / size + config["rms_norm_eps"])
    # save_file writes an array in the order of its memory, whatever its strides.
    weights["lm_head.weight"] = np.ascontiguousarray(log_probs.T * scale, np.float32)
    return weights
