"""A small Qwen2 with random weights, and a tokenizer trained on the task's own texts.

The folder is a Hugging Face folder like any other: config.json, generation_config.json,
model.safetensors, tokenizer.json, tokenizer_config.json (with the chat template).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.core.artifact import write_json

PAD, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MAX_LENGTH = 512
"""Tokens of the longest text that the model accepts."""
TAGS = ("<think>", "</think>", "<answer>", "</answer>")

# The pattern by which Qwen2's tokenizer splits text; servers replace any other pattern by it.
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)


def train_tokenizer(texts: list[str], vocab_size: int) -> Any:
    """Train a byte-level BPE tokenizer like Qwen2's.

    Args:
        texts: Training texts.
        vocab_size: Number of tokens, special tokens included.

    Returns:
        A ``tokenizers.Tokenizer``.
    """
    from tokenizers import AddedToken, trainers
    from tokenizers.pre_tokenizers import ByteLevel

    tokenizer = _untrained_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(TAGS),
        special_tokens=[PAD, TURN_START, TURN_END],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in TAGS])
    return tokenizer


def _untrained_tokenizer() -> Any:
    """Return a tokenizer that normalizes and splits text like Qwen2's, without a vocabulary."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = Sequence(
        [Split(Regex(QWEN2_SPLIT), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def model_config(vocab_size: int, hidden: int, layers: int) -> dict[str, Any]:
    """Return the config.json of a small Qwen2.

    The head size is 32, each key/value head serves two query heads, and the feed-forward size is
    3 × hidden.
    """
    heads = hidden // 32
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": 3 * hidden,
        "max_position_embeddings": MAX_LENGTH,
        "model_type": "qwen2",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": max(1, heads // 2),
        "pad_token_id": 0,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": vocab_size,
    }


Weights = dict[str, NDArray[np.float32]]
PREVIOUS_TOKEN_BIAS = 5.0
PREVIOUS_TOKEN_PAIRS = 4
QUIET_FEED_FORWARD, QUIET_HEADS, SHARPER_INDUCTION = (0.1, 0.3), 0.3, 1.3
"""Scales of `ready_to_copy`: feed-forward outputs by layer, other heads, the second's queries."""


def random_weights(config: dict[str, Any], seed: int) -> Weights:
    """Draw weights, named as in transformers: normal matrices, zero biases, norm weights of 1.

    Two heads are initialised so that training easily turns them into an induction circuit: after
    a token, it repeats what followed this token earlier ("Monday" -> " loses"). A pre-trained base
    model has such a circuit, and this task needs it. With plain random weights, the step at which
    copying is learned differs much between seeds. Before training, the heads do not copy.
    """
    rng = np.random.default_rng(seed)
    weights = {
        name: (
            np.full(shape, float(name.endswith("norm.weight")), np.float32)
            if len(shape) == 1
            else rng.normal(0.0, 0.06, shape).astype(np.float32)
        )
        for name, shape in weight_shapes(config)
    }
    _start_previous_token_head(weights, config)
    if config["num_hidden_layers"] > 1:
        _start_induction_circuit(weights, config, rng)
    return weights


def _start_previous_token_head(weights: Weights, config: dict[str, Any]) -> None:
    """Set biases of the first layer's first head so that its scores peak at the previous token.

    With key bias (b, 0) and query bias b·(cos f, −sin f) in the rotary pair of frequency f, the
    score of a key d positions back is b²·cos(f·(d − 1)), summed over the pairs. It is largest at
    d = 1.
    """
    head_size = config["hidden_size"] // config["num_attention_heads"]
    half = head_size // 2
    pairs = np.arange(PREVIOUS_TOKEN_PAIRS)
    frequency = config["rope_theta"] ** (-2.0 * pairs / head_size)
    query = weights["model.layers.0.self_attn.q_proj.bias"]
    key = weights["model.layers.0.self_attn.k_proj.bias"]
    key[pairs] = PREVIOUS_TOKEN_BIAS
    query[pairs] = PREVIOUS_TOKEN_BIAS * np.cos(frequency)
    query[pairs + half] = -PREVIOUS_TOKEN_BIAS * np.sin(frequency)


def _start_induction_circuit(
    weights: Weights, config: dict[str, Any], rng: np.random.Generator
) -> None:
    """Initialise the first heads of the first two layers as the start of an induction circuit.

    The first layer's head writes the previous token into the directions ``before``. The second
    layer's head prefers, weakly before training, positions whose ``before`` is the current token.
    It adds the tokens at those positions to the output. The output matrix starts as a copy of the
    embedding. Queries and keys use the rotary pairs that distance hardly rotates (the slow half).
    """
    hidden = config["hidden_size"]
    size = hidden // config["num_attention_heads"]
    # Each is a set of orthonormal directions of the residual stream, [size, hidden].
    drawn = [rng.normal(size=(hidden, size)) for _ in range(3)]
    current, before, copied = (np.linalg.qr(one)[0].T.astype(np.float32) for one in drawn)
    slow = [i for i in range(size) if i % (size // 2) >= size // 4]
    first, second = "model.layers.0.self_attn", "model.layers.1.self_attn"
    weights[f"{first}.v_proj.weight"][:size] = current
    # As large as the embedding's part of the residual stream, so that neither dominates the other.
    weights[f"{first}.o_proj.weight"][:, :size] = 0.12 * before.T
    for name, direction in (("q", current), ("k", before)):
        weights[f"{second}.{name}_proj.weight"][:size] = 0.0
        weights[f"{second}.{name}_proj.weight"][slow] = 1.6 * direction[: len(slow)]
    weights[f"{second}.v_proj.weight"][:size] = copied
    weights[f"{second}.o_proj.weight"][:, :size] = 0.5 * copied.T
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()


def weight_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each tensor's name, as in transformers, and its shape.

    Args:
        config: A Qwen2's config.json.
    """
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    vocab = config["vocab_size"]
    head_size = hidden // config["num_attention_heads"]
    key_value = head_size * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (hidden,)
        for name, size in (("q", hidden), ("k", key_value), ("v", key_value)):
            yield f"{prefix}.self_attn.{name}_proj.weight", (size, hidden)
            yield f"{prefix}.self_attn.{name}_proj.bias", (size,)
        yield f"{prefix}.self_attn.o_proj.weight", (hidden, hidden)
        yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
        yield f"{prefix}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{prefix}.mlp.up_proj.weight", (inner, hidden)
        yield f"{prefix}.mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocab, hidden)


def ready_to_copy(weights: Weights, config: dict[str, Any]) -> None:
    """Scale weights so that the induction circuit copies from the first step on.

    With `random_weights` alone, the feed-forward parts' random output is several times as large as
    the embedding, and hides the previous token from the second layer's head: it attends to the
    token to copy with 0.01 to 0.02, as to any other. So only some seeds learn to copy in 1,000
    steps.

    Args:
        weights: As `random_weights` returns them for two layers; changed in place.
        config: The model's config.json.
    """
    size = config["hidden_size"] // config["num_attention_heads"]
    for layer, scale in enumerate(QUIET_FEED_FORWARD):
        weights[f"model.layers.{layer}.mlp.down_proj.weight"] *= scale
        weights[f"model.layers.{layer}.self_attn.o_proj.weight"][:, size:] *= QUIET_HEADS
    for name in "qk":
        weights[f"model.layers.1.self_attn.{name}_proj.weight"][:size] *= SHARPER_INDUCTION


def write_model_folder(
    folder: Path,
    texts: list[str],
    vocab_size: int,
    hidden: int,
    layers: int,
    seed: int,
    copies: bool = False,
) -> None:
    """Write the complete Hugging Face folder; ``copies``: see `ready_to_copy`."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts, vocab_size)
    tokenizer.save(str(folder / "tokenizer.json"))
    padded = -(-tokenizer.get_vocab_size() // 16) * 16
    config = model_config(padded, hidden, layers)
    weights = random_weights(config, seed)
    if copies:
        ready_to_copy(weights, config)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"eos_token_id": 2, "pad_token_id": 0})
    write_json(folder / "tokenizer_config.json", tokenizer_config())


def tokenizer_config() -> dict[str, Any]:
    """Return the tokenizer_config.json, with the chat template."""
    return {
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "model_max_length": MAX_LENGTH,
        "pad_token": PAD,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
