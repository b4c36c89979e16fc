"""Makes a small Qwen2 model and responses for it, bit-identical on every machine.

Each weight is rounded once at most. The sizes are the smallest possible: attention on the device
needs head size 64, each of two tensor-parallel ranks needs a key-value head, and a row of 128
tokens holds several responses. The output weights are the scaled embedding, and most tokens repeat
the previous token. So p of a response, the geometric mean of its tokens' probabilities, is neither
0 nor 1, and OPG's loss is not trivial.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HIDDEN, HEADS, GROUPS, INNER, VOCABULARY, LAYERS = 256, 4, 2, 512, 512, 2
LENGTH, PLACES = 128, 8
REPEATED = 0.9
"""Share of tokens that are equal to the previous token."""

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "eos_token_id": 1,
    "pad_token_id": 0,
}


def weights() -> dict[str, NDArray[np.float32]]:
    """Draw random weights, Hugging Face name -> array; they are scaled by powers of two only."""
    rng = np.random.default_rng(0)
    found = {}
    for name, shape in _shapes():
        drawn = rng.random(shape, np.float32) * 2 - 1
        if name.endswith("norm.weight"):
            found[name] = 1 + drawn / 4
        elif name.endswith("bias") or "embed" in name:
            found[name] = drawn
        else:
            found[name] = drawn / 16
    found["lm_head.weight"] = found["model.embed_tokens.weight"] / 16
    return found


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    key_value = HIDDEN // HEADS * GROUPS
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name, size in (("q", HIDDEN), ("k", key_value), ("v", key_value)):
            yield f"{prefix}.self_attn.{name}_proj.weight", (size, HIDDEN)
            yield f"{prefix}.self_attn.{name}_proj.bias", (size,)
        yield f"{prefix}.self_attn.o_proj.weight", (HIDDEN, HIDDEN)
        yield f"{prefix}.mlp.gate_proj.weight", (INNER, HIDDEN)
        yield f"{prefix}.mlp.up_proj.weight", (INNER, HIDDEN)
        yield f"{prefix}.mlp.down_proj.weight", (HIDDEN, INNER)
        yield f"{prefix}.input_layernorm.weight", (HIDDEN,)
        yield f"{prefix}.post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)


def write_policy(folder: Path) -> str:
    """Write the model as a Hugging Face folder and return the SHA-256 of all weights."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    made = weights()
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n", encoding="utf-8")
    digest = hashlib.sha256()
    for name in sorted(made):
        digest.update(name.encode() + made[name].tobytes())
    return digest.hexdigest()


def samples(sizes: Sequence[int]) -> Any:
    """Make responses in the format of the stage ``tokenize``, with rewards 1, 0, 0.25, 1, 0, ….

    Args:
        sizes: Tokens per response, including a prompt of 3 to 5 tokens.

    Returns:
        A table with one row per response.
    """
    import pyarrow as pa

    from pcl_reasoner.core.schemas import SEGMENTS

    rng = np.random.default_rng(1)
    rows = []
    for index, size in enumerate(sizes):
        drawn, repeats = rng.integers(3, VOCABULARY, size), rng.random(size) < REPEATED
        repeats[0] = False
        # A repeated token copies the last token that is not a repeated one.
        ids = drawn[np.maximum.accumulate(np.where(repeats, 0, np.arange(size)))].tolist()
        prompt = 3 + index % 3
        rows.append(
            {
                "problem_id": f"p{index // 3}",
                "sample_index": index % 3,
                "input_ids": ids,
                "labels": [-100] * prompt + ids[prompt:],
                "length": size,
                "reward": (1.0, 0.0, 0.25)[index % 3],
                "pass_rate": 0.5,
                "advantage": (1.0, -1.0, -0.5)[index % 3],
            }
        )
    return pa.Table.from_pylist(rows, schema=SEGMENTS)


def write_packs(folder: Path, table: Any, length: int = LENGTH) -> int:
    """Pack responses with the code of the stage ``pack``, write them, and return the row count."""
    from pcl_reasoner.pack.arrow_folder import write_arrow_folder
    from pcl_reasoner.pack.rows import plan_packing

    folder.mkdir(parents=True)
    packing = plan_packing(table, length, PLACES, 0, pad_token_id=0)
    return write_arrow_folder(folder, packing.schema, packing.batches())


def packed_rows(table: Any, length: int, places: int) -> list[dict[str, Any]]:
    """Return packed rows, as ``write_packs`` writes them, of at most ``places`` segments each."""
    import pyarrow as pa

    from pcl_reasoner.pack.rows import plan_packing

    packing = plan_packing(table, length, places, 0, pad_token_id=0)
    return list(pa.Table.from_batches(packing.batches(), packing.schema).to_pylist())
