"""Reads a model's shape (by MindFormers' names) and its end tokens from the model's folder.

{"num_layers": 28, "hidden_size": 3584, "num_heads": 28, "n_kv_heads": 4, …}
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

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
        found = _Published.model_validate(value)
    except ValidationError as error:
        raise StageError(f"{path}: {_sentence(error)}") from error
    return ModelShape(**found.by_our_names())


_Count = Annotated[int, Field(strict=True, gt=0, le=1 << 24)]
_Number = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
_Token = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]
_Tokens = _Token | list[_Token] | None


class _Published(BaseModel):
    """The keys of a Qwen2 model's config.json that are read, by their published names."""

    num_hidden_layers: _Count
    hidden_size: _Count
    num_attention_heads: _Count
    num_key_value_heads: _Count | None = None
    intermediate_size: _Count
    vocab_size: _Count
    rms_norm_eps: _Number
    rope_theta: _Number = 10000.0
    max_position_embeddings: _Count
    tie_word_embeddings: Annotated[bool, Field(strict=True)] = False
    eos_token_id: _Tokens = None
    pad_token_id: _Tokens = None

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> "_Published":
        heads, grouped = self.num_attention_heads, self.num_key_value_heads
        if self.hidden_size % (2 * heads):
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of 2 x num_attention_heads "
                f"{heads}"
            )
        if grouped and heads % grouped:
            raise ValueError(
                f"num_attention_heads {heads} is not a multiple of num_key_value_heads {grouped}"
            )
        return self

    def by_our_names(self) -> dict[str, Any]:
        """Return the arguments of ModelShape."""
        return {
            "num_layers": self.num_hidden_layers,
            "hidden_size": self.hidden_size,
            "num_heads": self.num_attention_heads,
            "n_kv_heads": self.num_key_value_heads or self.num_attention_heads,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "rms_norm_eps": self.rms_norm_eps,
            "theta": self.rope_theta,
            "max_position_embedding": self.max_position_embeddings,
            "tie_word_embeddings": self.tie_word_embeddings,
            "eos_token_id": _first(self.eos_token_id, 151643),
            "pad_token_id": _first(self.pad_token_id, 151643),
        }


def _sentence(error: ValidationError) -> str:
    """Return the first problem as a sentence: which key, what it is, and what was expected."""
    problem = error.errors()[0]
    remedy = "Use the config.json that was published with the weights."
    key = ".".join(map(str, problem["loc"][:1]))
    if problem["type"] == "missing":
        return f"has no {key}, which every Qwen2 model has. {remedy}"
    if not key:
        return f"{problem['msg'].removeprefix('Value error, ')}. {remedy}"
    got = repr(problem["input"])
    got = got if len(got) <= 60 else f"{got[:60]}…"
    return f"{key} is {got}: {problem['msg'].lower()}. {remedy}"


def _first(value: int | list[int] | None, default: int) -> int:
    found = (value[0] if value else None) if isinstance(value, list) else value
    return default if found is None else found


_END_TOKENS: TypeAdapter[int | list[int]] = TypeAdapter(
    _Token | Annotated[list[_Token], Field(min_length=1)]
)


def end_tokens(folder: Path) -> list[int]:
    """Read the token ids that end a response from generation_config.json, or else config.json.

    Raises:
        StageError: Neither file has an ``eos_token_id``, or it is not a token id.
    """
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        if value is None:
            continue
        try:
            found = _END_TOKENS.validate_python(value)
        except ValidationError as error:
            raise StageError(
                f"{folder / name}: eos_token_id is {str(value)[:60]!r}, expected the id of a "
                "token, or a list of ids. Use the file that was published with the weights."
            ) from error
        return found if isinstance(found, list) else [found]
    raise StageError(
        f"{folder}: neither generation_config.json nor config.json has eos_token_id, so no "
        "response could end. Add it: the id of the template's end-of-turn token."
    )
