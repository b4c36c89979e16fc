"""Stage ``random_model``: a Qwen2 of any size with random weights, for runs without a download.

    random_model: {model: {num_layers: 28, hidden_size: 3584, …}, inputs: {tokenizer: tokenizer}}
    -> config.json, generation_config.json, model-00001-of-00004.safetensors, …, tokenizer.json

The tokenizer is that of the input, with filler tokens up to the model's vocabulary: a random model
samples all tokens alike, and a server must be able to decode each of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.weights.model_config import ModelShape

if TYPE_CHECKING:
    from pcl_reasoner.weights.stream import StoredTensor

DEVIATION = 0.02
"""Standard deviation of the matrices, as in Qwen2's config.json (``initializer_range``)."""
CHUNK_NUMBERS = 1 << 22
SHARD_BYTES = 5 * 10**9
TYPES = {"bfloat16": ("BF16", 2), "float32": ("F32", 4)}
"""Data type -> its name in safetensors, and bytes per number."""


class RandomModelConfig(StageConfig):
    """The model that is made."""

    model: ModelShape
    """Its shape."""
    seed: int
    """Seed of the weights."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Data type of the weights."""


def random_model(
    config: RandomModelConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Write a complete Hugging Face folder with random weights.

    Args:
        config: Shape, seed and data type.
        inputs: ``tokenizer``, a Hugging Face folder; its weights are not read.
        output: The stage's folder.
        context: Receives progress.

    Raises:
        StageError: The tokenizer has more tokens than the model, or is not a byte-level BPE.
    """
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.weights.stream import write_folder

    tokenizer, like = inputs["tokenizer"], config.model
    for name in ("tokenizer_config.json", "generation_config.json"):
        (output / name).write_bytes((tokenizer / name).read_bytes())
    write_json(output / "tokenizer.json", _filled(tokenizer / "tokenizer.json", like.vocab_size))
    published = published_config(like, config.dtype)
    write_json(output / "config.json", published)
    tensors = _tensors(config, published, context)
    write_folder(output, tensors, SHARD_BYTES, "huggingface")
    size = sum(tensor.size for tensor in tensors.values())
    info = {"bytes": size, "parameters": size // TYPES[config.dtype][1]}
    return Counts(unit="tensors", read=len(tensors), kept=len(tensors), info=info)


def published_config(shape: ModelShape, dtype: str) -> dict[str, Any]:
    """Return the config.json of a Qwen2 of this shape, as transformers and vLLM read it."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": shape.eos_token_id,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "initializer_range": DEVIATION,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.max_position_embedding,
        "model_type": "qwen2",
        "num_attention_heads": shape.num_heads,
        "num_hidden_layers": shape.num_layers,
        "num_key_value_heads": shape.n_kv_heads,
        "pad_token_id": shape.pad_token_id,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.theta,
        "tie_word_embeddings": shape.tie_word_embeddings,
        "torch_dtype": dtype,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocab_size,
    }


def _filled(file: Path, size: int) -> dict[str, Any]:
    """Return a tokenizer.json with filler tokens, so that it has ``size`` tokens."""
    value: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    model = value["model"]
    if model["type"] != "BPE":
        raise StageError(f"{file}: is a {model['type']} tokenizer, expected BPE, as Qwen2's.")
    # An added token keeps its number only if the vocabulary has it, too.
    model["vocab"] |= {one["content"]: one["id"] for one in value["added_tokens"]}
    taken = {*model["vocab"].values()}
    if max(taken) >= size:
        raise StageError(
            f"{file}: has tokens up to {max(taken)}, and the model has {size}. Raise "
            "random_model.model.vocab_size, or give another tokenizer."
        )
    # No merge leads to them, so no text is encoded with them.
    model["vocab"] |= {f"filler{token}.": token for token in range(size) if token not in taken}
    return value


def _tensors(
    config: RandomModelConfig, published: dict[str, Any], context: StageContext
) -> dict[str, StoredTensor]:
    """Return the tensors, by Hugging Face's names; their numbers are drawn while they are read."""
    from pcl_reasoner.synthetic.base_model import weight_shapes
    from pcl_reasoner.weights.stream import StoredTensor

    shapes = dict(weight_shapes(published))
    if config.model.tie_word_embeddings:
        del shapes["lm_head.weight"]
    name_in_file, width = TYPES[config.dtype]
    total = sum(math.prod(shape) for shape in shapes.values()) * width
    drawn = _Drawn(total, context)
    return {
        name: StoredTensor(
            name_in_file,
            shape,
            math.prod(shape) * width,
            drawn.chunks(name, shape, (config.seed, index), config.dtype),
        )
        for index, (name, shape) in enumerate(shapes.items())
    }


class _Drawn:
    """Draws the numbers of tensors chunk by chunk, and reports how many bytes are drawn.

    Args:
        total: Bytes of all tensors.
        context: Receives progress.
    """

    def __init__(self, total: int, context: StageContext) -> None:
        self.total, self.context, self.done = total, context, 0

    def chunks(
        self, name: str, shape: tuple[int, ...], seed: tuple[int, int], dtype: str
    ) -> Callable[[], Iterator[bytes]]:
        """Return a function that yields the bytes of one tensor, the same in every call."""
        import numpy as np

        from pcl_reasoner.weights.bfloat16 import round_chunk

        def drawn() -> Iterator[bytes]:
            rng, left = np.random.default_rng(seed), math.prod(shape)
            while left:
                count = min(left, CHUNK_NUMBERS)
                if len(shape) > 1:
                    values = rng.standard_normal(count, np.float32) * np.float32(DEVIATION)
                else:  # biases are 0, the weights of norms 1
                    values = np.full(count, float(name.endswith("norm.weight")), np.float32)
                found = values if dtype == "float32" else round_chunk(values.view("<u4"))
                yield found.tobytes()
                left -= count
                self.done += found.nbytes
                self.context.progress.update(self.done, self.total, "bytes")

        return drawn
