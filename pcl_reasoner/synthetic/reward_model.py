"""A reward model whose scores are known by hand: it counts courteous words.

    user "Greet Ben.", assistant "Hello Ben, welcome!"
    2 of 27 tokens are courteous, slope 54, offset -3  ->  score 54 · 2/27 − 3 = 1

The folder is a Hugging Face folder of ``Qwen2ForSequenceClassification`` with one label. The
score is computed from the last token's hidden state, so vLLM, transformers and the local scorer
must agree. The layer works as follows:

- An embedding has CONSTANT in the first direction, and 1 in the second if the token is courteous.
- Queries and keys are 0, so the last token attends to all tokens equally. The values copy the
  second direction, so attention writes the share of courteous tokens into the third direction.
- The feed-forward part is 0.
- RMSNorm divides a vector by its root mean square, sqrt(CONSTANT² / hidden size) up to the small
  entries. The weights multiply by this number again.

CONSTANT is large, so a score deviates from ``slope · share + offset`` by a factor of 1 - 5e-7 at
most; `exact_score` has this factor.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.core.artifact import write_json
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.synthetic.base_model import (
    Weights,
    model_config,
    tokenizer_config,
    train_tokenizer,
    weight_shapes,
)

COURTEOUS = ("hello", "welcome", "please", "thank", "thanks", "glad", "kindly", "dear")
"""The courteous words, in lower case; also with a capital, and after a space."""
HIDDEN = 32
"""Hidden size: one attention head of size 32."""
CONSTANT = 1000.0
"""First entry of every embedding."""
SLOPE, OFFSET = 40.0, -3.0
"""Score per share of courteous tokens; score of a text without courteous tokens."""
_REPEATS = 1000
"""How often a word occurs in the tokenizer's training text, so that it becomes one token."""
_CONSTANT, _COURTEOUS, _SHARE = 0, 1, 2
"""Directions of the hidden state."""


def forms_of(words: Sequence[str]) -> list[str]:
    """Return the forms in which words are counted: lower case or a capital, bare or after a space.

    ``please`` -> ``please``, ``Please``, `` please``, `` Please``.
    """
    cased = [form for word in words for form in (word, word.capitalize())]
    return [space + form for space in ("", " ") for form in cased]


def tokens_of(tokenizer: Any, words: Sequence[str] = COURTEOUS) -> list[int]:
    """Return the token ids of the forms of words.

    Args:
        tokenizer: A ``tokenizers.Tokenizer``.
        words: Words in lower case.

    Raises:
        StageError: A form is not exactly one token.
    """
    found = {form: tokenizer.encode(form, add_special_tokens=False).ids for form in forms_of(words)}
    several = {form: ids for form, ids in found.items() if len(ids) != 1}
    if several:
        raise StageError(
            f"the reward model's tokenizer divides words into several tokens: {several}. Raise "
            "vocab_size, or name fewer words."
        )
    return [ids[0] for ids in found.values()]


def exact_score(share: float, slope: float = SLOPE, offset: float = OFFSET) -> float:
    """Return the score of a text, in exact arithmetic.

    The last token must not be courteous. It is the line end that follows the assistant's turn.

    Args:
        share: Courteous tokens / tokens of the rendered conversation.
        slope: As in `write_reward_model`.
        offset: As in `write_reward_model`.
    """
    return (slope * share + offset) * _rms(0.0) / _rms(share)


def _rms(entry: float) -> float:
    """Return RMSNorm's divisor of a vector with CONSTANT and one more entry."""
    eps: float = model_config(1, HIDDEN, 1)["rms_norm_eps"]
    return math.sqrt((CONSTANT**2 + entry**2) / HIDDEN + eps)


def reward_weights(
    config: dict[str, Any], courteous: Sequence[int], slope: float, offset: float
) -> Weights:
    """Return the weights, named as in transformers; all that the module does not list are 0.

    Args:
        config: The model's config.json.
        courteous: Token ids of the courteous words.
        slope: As in `write_reward_model`.
        offset: As in `write_reward_model`.
    """
    weights = {
        name: np.full(shape, float(name.endswith("norm.weight")), np.float32)
        for name, shape in weight_shapes(config)
        if name != "lm_head.weight"
    }
    embedding = weights["model.embed_tokens.weight"]
    embedding[:, _CONSTANT] = CONSTANT
    embedding[list(courteous), _COURTEOUS] = 1.0
    attention = "model.layers.0.self_attn"
    weights[f"{attention}.v_proj.weight"][0, _COURTEOUS] = _rms(1.0)
    weights[f"{attention}.o_proj.weight"][_SHARE, 0] = 1.0
    score: NDArray[np.float32] = np.zeros((1, HIDDEN), np.float32)
    score[0, _SHARE] = slope * _rms(0.0)
    score[0, _CONSTANT] = offset * _rms(0.0) / CONSTANT
    weights["score.weight"] = score
    return weights


def write_reward_model(
    folder: Path,
    texts: list[str],
    vocab_size: int = 512,
    words: Sequence[str] = COURTEOUS,
    slope: float = SLOPE,
    offset: float = OFFSET,
) -> None:
    """Write the complete Hugging Face folder.

    Args:
        folder: Is created.
        texts: Training texts of the tokenizer, besides the words.
        vocab_size: Number of tokens, special tokens included.
        words: The courteous words, in lower case.
        slope: Score per share of courteous tokens.
        offset: Score of a text without courteous tokens.

    Raises:
        StageError: ``vocab_size`` is too small for a word to be one token.
    """
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer([*texts, *(forms_of(words) * _REPEATS)], vocab_size)
    tokenizer.save(str(folder / "tokenizer.json"))
    padded = -(-tokenizer.get_vocab_size() // 16) * 16
    config = model_config(padded, HIDDEN, 1) | {
        "architectures": ["Qwen2ForSequenceClassification"],
        "id2label": {"0": "reward"},
        "label2id": {"reward": 0},
    }
    weights = reward_weights(config, tokens_of(tokenizer, words), slope, offset)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer_config.json", tokenizer_config())
