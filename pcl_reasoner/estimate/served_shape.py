"""The shape of a model that servers serve, as far as their memory and speed depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from pcl_reasoner.estimate.training_size import Training

SERVED_BYTES = 2
"""Bytes per number in served weights, keys and values: bfloat16."""


@dataclass(frozen=True)
class ServedModel:
    """A model on a server.

    Args:
        title: What it is, for the report.
        layers: Layers.
        heads: Attention heads.
        stored: Number of weights.
        embedding: Weights that a decoding step does not read.
        active: Weights in the matrix products of one token; with experts, fewer than are stored.
        width: Numbers per layer that a token's attention multiplies with each earlier token.
        cached: Numbers per layer and token that are kept for later tokens: keys and values.
        cache_parts: Most devices over which one token's cached numbers can be divided.
        weight_bytes: Bytes per weight.
    """

    title: str
    layers: int
    heads: int
    stored: float
    embedding: float
    active: float
    width: float
    cached: float
    cache_parts: int
    weight_bytes: float = SERVED_BYTES

    @property
    def read(self) -> float:
        """Number of weights that a decoding step reads: at most all, whatever experts it needs."""
        return self.stored - self.embedding

    @property
    def has_experts(self) -> bool:
        """Whether a token's products need only a part of the weights."""
        return self.active < self.read


def dense_model(
    title: str,
    layers: int,
    hidden: int,
    heads: int,
    key_heads: int,
    feed_forward: int,
    vocabulary: int,
    head: int | None = None,
) -> ServedModel:
    """Return a model without experts; the arguments are those of its config.json.

    ``head`` is ``head_dim``; None: hidden / heads.
    """
    head = head or hidden // heads
    queries, keys = head * heads, head * key_heads
    layer = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * feed_forward
    matrix = vocabulary * hidden
    products = layers * layer + matrix
    return ServedModel(
        title=title,
        layers=layers,
        heads=heads,
        stored=products + matrix,
        embedding=matrix,
        active=products,
        width=queries,
        cached=2 * keys,
        cache_parts=key_heads,
    )


def trained_model(job: Training, title: str = "the trained model") -> ServedModel:
    """Return the trained model; only the shape counts."""
    names = ("layers", "hidden", "heads", "key_heads", "feed_forward", "vocabulary")
    return dense_model(title, **{name: getattr(job, name) for name in names})
