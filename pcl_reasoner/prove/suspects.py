"""What may be wrong with a server's model. Each suspect changes our own pass, not the server's.

    Suspect("the output head is the embedding", weights=…)        changes tensors
    Suspect("rotary base 10000", settings={"theta": 10000.0})     changes the model's settings

The suspect with which the checkpoint's pass gives the server's numbers is the cause. Suspects come
in groups: what is cheap and frequent first. Tensors have MindFormers' names.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcl_reasoner.prove.rearranged import (
    Order,
    rounded_to_bfloat16,
    rounded_to_float16,
    rows_from,
    rows_in_order,
    zeros,
)
from pcl_reasoner.weights.model_config import ModelShape
from pcl_reasoner.weights.names import EMBEDDINGS, HEAD, mindformers_name
from pcl_reasoner.weights.stream import StoredTensor

Tensors = Mapping[str, StoredTensor]
Change = Callable[[Tensors], dict[str, StoredTensor]]

EMBEDDING = mindformers_name(EMBEDDINGS)
OUTPUT = mindformers_name(HEAD)
_PAIRS_OF = 8
"""Every pair of heads is tried in models with at most this many heads."""
_BASES = (1e4, 1e5, 5e5, 1e6, 1e7)
"""Rotary bases of published models: Qwen and Llama 2; Llama 3; Qwen2 and Qwen2.5; longer contexts.
"""
_EPSILONS = (1e-5, 1e-6, 1e-8, 1e-12)
"""Epsilons of RMSNorm of published models, and frameworks' defaults."""


@dataclass(frozen=True)
class Suspect:
    """One possible cause.

    Args:
        name: What it is, for people; different for each suspect.
        weights: Returns the changed tensors; those that it leaves out stay.
        settings: Keys of MindFormers' ``model_config`` to change.
        remedy: What to do if it is the cause.
    """

    name: str
    weights: Change = field(default=lambda tensors: {})
    settings: Mapping[str, Any] = field(default_factory=dict)
    remedy: str = ""


AS_TRAINED = Suspect("as trained")
_EXPORT = "Convert the weights again, with this version's `export`, and compare parity.json."


def groups(
    shape: ModelShape, served: Mapping[str, Any], others: Mapping[str, Tensors]
) -> Iterator[list[Suspect]]:
    """Yield the suspects in groups of equal settings, the likely and cheap ones first.

    Args:
        shape: The trained model's shape.
        served: config.json of the folder that the servers were started with.
        others: Other weights that the server may have: name -> tensors, e.g. the policy before
            training.
    """
    yield [
        *_whole(others),
        *_head(shape, others),
        *_orders(shape),
        *_roundings(),
    ]
    yield [*_untied(shape, others)]
    # Every other setting needs a process of its own, because the model is compiled again.
    parameters = served.get("rope_parameters") or {}
    base = served.get("rope_theta") or parameters.get("rope_theta")
    written = _settings(shape, (base,), (served.get("rms_norm_eps"),))
    yield from ([one] for one in written)
    yield [one for name, tensors in others.items() for one in _layers(shape, name, tensors)]
    tried = {one.name for one in written}
    published = _settings(shape, _BASES, _EPSILONS)
    yield from ([one] for one in published if one.name not in tried)


def _whole(others: Mapping[str, Tensors]) -> Iterator[Suspect]:
    for name, tensors in others.items():
        yield Suspect(
            f"the weights of {name}",
            _taken(tensors),
            remedy="Stop the server, and start it with the exported folder.",
        )


def _layers(shape: ModelShape, name: str, tensors: Tensors) -> Iterator[Suspect]:
    """Yield one suspect per layer that has other weights."""
    parts = [f"model.layers.{index}." for index in range(shape.num_layers)]
    for part in (*parts, EMBEDDING, "model.norm_out."):
        yield Suspect(
            f"{part.rstrip('.')} of {name}",
            _taken(tensors, part),
            remedy="The folder mixes two states of the model: export again, into an empty folder.",
        )


def _head(shape: ModelShape, others: Mapping[str, Tensors]) -> Iterator[Suspect]:
    """Yield other output heads of a model whose head is its own."""
    if shape.tie_word_embeddings:
        return
    yield Suspect(
        "the embedding as output head, where training has a head of its own",
        lambda ours: {OUTPUT: ours[EMBEDDING]},
        remedy="Set tie_word_embeddings to false in the served config.json.",
    )
    for name, tensors in others.items():
        yield Suspect(
            f"the output head of {name}",
            _head_of(tensors[OUTPUT]),
            remedy=_EXPORT,
        )


def _untied(shape: ModelShape, others: Mapping[str, Tensors]) -> Iterator[Suspect]:
    """Yield output heads of their own for a model whose head is tied to the embedding."""
    if not shape.tie_word_embeddings:
        return
    for name, tensors in others.items():
        yield Suspect(
            f"an output head of its own, the embedding of {name}, where training ties the head",
            _head_of(tensors[EMBEDDING]),
            {"tie_word_embeddings": False},
            "Set tie_word_embeddings to true in the served config.json, and remove lm_head.weight.",
        )


def _roundings() -> Iterator[Suspect]:
    for name, change in (("bfloat16", rounded_to_bfloat16), ("float16", rounded_to_float16)):
        yield Suspect(
            f"weights rounded to {name}",
            _each(change),
            remedy=f"Start the server with the training's --dtype, or set server_dtype to {name}.",
        )
    yield Suspect(
        "no bias of queries, keys and values",
        lambda ours: {key: zeros(one) for key, one in ours.items() if _is_bias(key)},
        remedy="The served config.json must be that of a Qwen2 model, which has these biases.",
    )


def _taken(theirs: Tensors, start: str = "") -> Change:
    """Return the change that takes all tensors whose names begin with ``start`` from others."""
    return lambda ours: {
        name: theirs[name] for name in ours if name.startswith(start) and name in theirs
    }


def _head_of(head: StoredTensor) -> Change:
    return lambda ours: {OUTPUT: head}


def _each(change: Callable[[StoredTensor], StoredTensor]) -> Change:
    return lambda ours: {name: change(one) for name, one in ours.items()}


def _is_bias(name: str) -> bool:
    return name.endswith(".bias") and ".attention." in name


def _settings(
    shape: ModelShape, bases: tuple[Any, ...], epsilons: tuple[Any, ...]
) -> list[Suspect]:
    """Return the rotary bases and epsilons that training does not have."""
    found = [
        Suspect(
            f"rotary base {base:g}, where training has {shape.theta:g}",
            settings={"theta": base, "rotary_emb_base": int(base)},
            remedy=f"Set rope_theta to {shape.theta:g} in the served config.json, and start the "
            "server without another rope_theta in --hf-overrides.",
        )
        for base in _distinct(bases, shape.theta)
    ]
    return found + [
        Suspect(
            f"rms_norm_eps {eps:g}, where training has {shape.rms_norm_eps:g}",
            settings={"rms_norm_eps": eps},
            remedy=f"Set rms_norm_eps to {shape.rms_norm_eps:g} in the served config.json, and "
            "start the server without another rms_norm_eps in --hf-overrides.",
        )
        for eps in _distinct(epsilons, shape.rms_norm_eps)
    ]


def _distinct(values: tuple[Any, ...], trained: float) -> list[float]:
    numbers = [float(one) for one in values if isinstance(one, int | float) and one > 0]
    return [one for one in dict.fromkeys(numbers) if one != trained]


def _orders(shape: ModelShape) -> Iterator[Suspect]:
    """Yield other orders of the rows of queries, keys and values, the same in all layers."""
    heads, groups_, width = shape.num_heads, shape.n_kv_heads, shape.head_dim
    each = heads // groups_
    grid = np.arange(heads)
    orders = {
        "query heads by place in their group": grid.reshape(groups_, each).T.ravel(),
        "query heads by group, taken as by place": grid.reshape(each, groups_).T.ravel(),
        "query heads in reverse": grid[::-1],
        "neighbouring query heads swapped": _neighbours(heads),
    }
    for name, order in orders.items():
        yield _moved(name, {"wq": _by_head(order, width)})
    if heads <= _PAIRS_OF:
        for first in range(heads):
            for second in range(first + 1, heads):
                swapped = _swapped(heads, first, second)
                name = f"query heads {first} and {second} swapped"
                yield _moved(name, {"wq": _by_head(swapped, width)})
    keys = {
        "key and value heads in reverse": np.arange(groups_)[::-1],
        "neighbouring key and value heads swapped": _neighbours(groups_),
    }
    for name, order in keys.items():
        for parts, which in ((("wk", "wv"), ""), (("wk",), ": keys only"), (("wv",), ": values")):
            yield _moved(name + which, dict.fromkeys(parts, _by_head(order, width)))
    halves = np.arange(width).reshape(2, -1).T.ravel()
    for name, order in (
        ("pairs of the rotary embedding side by side, taken as two halves", halves),
        ("halves of the rotary embedding, taken as pairs side by side", np.argsort(halves)),
    ):
        inside = {"wq": _inside(order, heads), "wk": _inside(order, groups_)}
        yield _moved(name, inside)
    yield Suspect("keys and values exchanged", _exchanged, remedy=_EXPORT)
    yield from _fused(shape)


def _by_head(order: Order, width: int) -> Order:
    """Return the order of rows for an order of heads of ``width`` rows each."""
    return (order[:, None] * width + np.arange(width)).ravel()


def _inside(order: Order, heads: int) -> Order:
    """Return the order of rows for an order inside each head."""
    return (np.arange(heads)[:, None] * len(order) + order).ravel()


def _swapped(count: int, first: int, second: int) -> Order:
    order = np.arange(count)
    order[[first, second]] = second, first
    return order


def _neighbours(count: int) -> Order:
    order = np.arange(count)
    even = count // 2 * 2
    order[:even] = order[:even].reshape(-1, 2)[:, ::-1].ravel()
    return order


def _moved(name: str, orders: Mapping[str, Order]) -> Suspect:
    def change(ours: Tensors) -> dict[str, StoredTensor]:
        found = {}
        for key, one in ours.items():
            part = key.split(".")[-2]
            if ".attention." in key and part in orders:
                found[key] = rows_in_order(one, orders[part])
        return found

    return Suspect(name, change, remedy=_EXPORT)


def _exchanged(ours: Tensors) -> dict[str, StoredTensor]:
    pairs = {".wk.": ".wv.", ".wv.": ".wk."}
    found = {}
    for key in ours:
        for here, there in pairs.items():
            if here in key:
                found[key] = ours[key.replace(here, there)]
    return found


def _fused(shape: ModelShape) -> Iterator[Suspect]:
    """Yield wrong splits of a joined matrix of queries, keys and values.

    Megatron's joined matrix has, group by group, the queries of the group, its key and its value;
    others have all queries, then all keys, then all values.
    """
    heads, groups_ = shape.num_heads, shape.n_kv_heads
    each = heads // groups_
    queries = np.arange(heads).reshape(groups_, each)
    keys = heads + np.arange(groups_)[:, None]
    by_group = np.concatenate([queries, keys, keys + groups_], axis=1).ravel()
    for name, order in (
        ("a joined matrix by groups, split as queries, keys, values", by_group),
        ("a joined matrix of queries, keys, values, split by groups", np.argsort(by_group)),
    ):
        rows = _by_head(order, shape.head_dim)
        ends = np.cumsum([heads, groups_, groups_]) * shape.head_dim
        parts = dict(zip(("wq", "wk", "wv"), np.split(rows, ends[:-1]), strict=True))
        yield Suspect(name, _split_as(parts), remedy=_EXPORT)


def _split_as(parts: Mapping[str, Order]) -> Change:
    def change(ours: Tensors) -> dict[str, StoredTensor]:
        found = {}
        for key, one in ours.items():
            part = key.split(".")[-2]
            if ".attention." in key and part in parts:
                joined = [ours[key.replace(f".{part}.", f".{name}.")] for name in parts]
                found[key] = rows_from(joined, parts[part], one)
        return found

    return change
