"""Names and shapes of a Qwen2 model's tensors, in Hugging Face and in MindFormers.

    model.layers.0.self_attn.q_proj.weight   <->   model.layers.0.attention.wq.weight
    lm_head.weight                           <->   lm_head.weight

Both frameworks use the same shapes and layouts. A conversion changes only names, so a conversion to
the other framework and back is bit-exact.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.weights.model_config import ModelShape
from pcl_reasoner.weights.stream import StoredTensor, Style, digest

_PARTS = (
    ("embed_tokens.weight", "tok_embeddings.embedding_weight"),
    (".self_attn.q_proj.", ".attention.wq."),
    (".self_attn.k_proj.", ".attention.wk."),
    (".self_attn.v_proj.", ".attention.wv."),
    (".self_attn.o_proj.", ".attention.wo."),
    (".mlp.gate_proj.", ".feed_forward.w1."),
    (".mlp.down_proj.", ".feed_forward.w2."),
    (".mlp.up_proj.", ".feed_forward.w3."),
    (".input_layernorm.", ".attention_norm."),
    (".post_attention_layernorm.", ".ffn_norm."),
    ("model.norm.", "model.norm_out."),
)
EMBEDDINGS = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FIGURES = "step_figures"
"""End of the name of a parameter that is not a weight: it holds the statistics of a step."""
_SHOWN = 8


def mindformers_name(hugging_face: str) -> str:
    """Translate a parameter's name from Hugging Face's to MindFormers'."""
    name = hugging_face
    for theirs, ours in _PARTS:
        name = name.replace(theirs, ours)
    return name


def styled(hugging_face: str, style: Style) -> str:
    """Translate a parameter's name from Hugging Face's to that of the framework ``style``."""
    return hugging_face if style == "huggingface" else mindformers_name(hugging_face)


def first_few(wrong: list[str]) -> str:
    """Join the first errors of a list, and add the number of the others."""
    more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return "; ".join(wrong[:_SHOWN]) + more


def expected_shapes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Return all tensors of a Qwen2 model: Hugging Face's name -> dimensions.

    Args:
        shape: The model's shape; with tied embeddings there is no ``lm_head.weight``.
    """
    hidden, inner = shape.hidden_size, shape.intermediate_size
    grouped = hidden // shape.num_heads * shape.n_kv_heads
    layer: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (hidden, hidden),
        "self_attn.q_proj.bias": (hidden,),
        "self_attn.k_proj.weight": (grouped, hidden),
        "self_attn.k_proj.bias": (grouped,),
        "self_attn.v_proj.weight": (grouped, hidden),
        "self_attn.v_proj.bias": (grouped,),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    found: dict[str, tuple[int, ...]] = {EMBEDDINGS: (shape.vocab_size, hidden)}
    for index in range(shape.num_layers):
        found |= {f"model.layers.{index}.{name}": sizes for name, sizes in layer.items()}
    found["model.norm.weight"] = (hidden,)
    if not shape.tie_word_embeddings:
        found[HEAD] = (shape.vocab_size, hidden)
    return found


@dataclass(frozen=True)
class Match:
    """The result of ``match``: the stored tensor for each tensor of the model.

    Args:
        names: Hugging Face name -> name under which the tensor is stored.
        left_out: Name, or its first part -> number of stored tensors that are not weights of the
            model: ``{"adam_m": 339, "global_step": 1}``.
    """

    names: dict[str, str]
    left_out: dict[str, int]


def match(found: Mapping[str, StoredTensor], shape: ModelShape, style: Style, where: Path) -> Match:
    """Find each tensor of the model among the stored tensors.

    Args:
        found: Stored tensors, by name.
        shape: The model's shape.
        style: The framework whose names ``found`` has.
        where: Their folder, for error messages.

    Raises:
        StageError: A tensor is missing, unexpected or of another shape, or an ``lm_head.weight``
            differs from the embeddings to which it is tied. The message names the tensors.
    """
    wanted = expected_shapes(shape)
    names = {name: styled(name, style) for name in wanted}
    embeddings = found.get(names[EMBEDDINGS])
    left_out: Counter[str] = Counter()
    wrong = list(misfits(wanted, names, found))
    for name in found.keys() - set(names.values()):
        kind = _left_out_as(name, style, shape.tie_word_embeddings)
        if kind is None:
            wrong.append(f"{name} is unexpected")
        elif kind == HEAD and (embeddings is None or digest(found[name]) != digest(embeddings)):
            wrong.append(f"{name} differs from {names[EMBEDDINGS]}, to which config.json ties it")
        else:
            left_out[kind] += 1
    if wrong:
        raise StageError(_message(sorted(wrong), found, style, where))
    return Match(names, dict(sorted(left_out.items())))


def misfits(
    wanted: Mapping[str, tuple[int, ...]],
    names: Mapping[str, str],
    found: Mapping[str, StoredTensor],
) -> Iterator[str]:
    """Yield a sentence for each tensor that is missing or has another shape.

    Args:
        wanted: Name -> dimensions.
        names: Name -> name under which the tensor is stored.
        found: Stored tensors, by the latter name.
    """
    for name, stored in names.items():
        shown = name if name == stored else f"{name} (as {stored})"
        if stored not in found:
            yield f"{shown} is missing"
        elif found[stored].shape != wanted[name]:
            yield f"{shown} has shape {list(found[stored].shape)}, expected {list(wanted[name])}"


def _left_out_as(name: str, style: Style, tied: bool) -> str | None:
    """The key of Match.left_out for a tensor that is no weight; None if it is an error."""
    if name == HEAD and tied:
        return HEAD
    if style == "mindformers" and name.endswith(FIGURES):
        return FIGURES
    if style == "mindformers" and not name.startswith(("model.", "lm_head.")):
        return name.split(".")[0]  # an optimizer state or a counter
    # Transformers 4.30 and older saved the constant table of the rotary embedding.
    return "rotary_emb.inv_freq" if name.endswith("rotary_emb.inv_freq") else None


def _message(wrong: list[str], found: Mapping[str, StoredTensor], style: Style, where: Path) -> str:
    other = {"mindformers": EMBEDDINGS, "huggingface": mindformers_name(EMBEDDINGS)}[style]
    whose = {"mindformers": "Hugging Face's", "huggingface": "MindFormers'"}[style]
    hint = f" Its names are {whose} already." if other in found else ""
    if style == "mindformers" and any("has shape" in line for line in wrong):
        hint += " Ranks' slices can only be merged if the run's folder 'strategy' is beside them."
    return f"{where}: does not hold the model's weights: {first_few(wrong)}.{hint}"
