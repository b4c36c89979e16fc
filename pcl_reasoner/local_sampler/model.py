"""The Cells of a small Qwen2 model, which the local sampler's prefill and decoding step share."""

import math
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from pcl_reasoner.weights.model_config import ModelShape


def parameter(value: NDArray[np.float32], name: str) -> Parameter:
    """Return a parameter that is not trained."""
    return Parameter(Tensor(np.ascontiguousarray(value)), name=name, requires_grad=False)


class Layer(nn.Cell):
    """The parts of a Qwen2 layer that prefill and step share; x is [tokens, hidden].

    Each kernel call costs time, so constant factors are multiplied in advance: the norms' weights
    and the attention scale are part of the matrices that follow them.
    """

    def __init__(
        self, shape: ModelShape, weights: dict[str, NDArray[np.float32]], index: int
    ) -> None:
        super().__init__()
        prefix = f"model.layers.{index}."
        attention = [f"{prefix}self_attn.{name}_proj" for name in "qkv"]
        qkv = np.concatenate([weights[f"{name}.weight"] for name in attention]).T
        bias = np.concatenate([weights[f"{name}.bias"] for name in attention])
        scale = np.ones(len(bias), np.float32)
        scale[: shape.num_heads * shape.head_dim] = 1.0 / math.sqrt(shape.head_dim)
        norm1 = weights[f"{prefix}input_layernorm.weight"]
        norm2 = weights[f"{prefix}post_attention_layernorm.weight"]
        gate_up = [weights[f"{prefix}mlp.{name}_proj.weight"] for name in ("gate", "up")]
        self.qkv = parameter(norm1[:, None] * qkv * scale, f"{prefix}qkv")
        self.bias = parameter(bias * scale, f"{prefix}bias")
        self.out = parameter(weights[f"{prefix}self_attn.o_proj.weight"].T, f"{prefix}out")
        self.gate_up = parameter(norm2[:, None] * np.concatenate(gate_up).T, f"{prefix}gate_up")
        self.down = parameter(weights[f"{prefix}mlp.down_proj.weight"].T, f"{prefix}down")
        self.eps = shape.rms_norm_eps
        self.heads, self.kv_heads, self.head_dim = shape.num_heads, shape.n_kv_heads, shape.head_dim

    def rotate(self, x: Any, cos: Any, sin: Any) -> Any:
        """Rotary embedding of x [tokens, heads, head_dim]; cos, sin [tokens, 1, head_dim]."""
        half = self.head_dim // 2
        return x * cos + ops.concat((-x[..., half:], x[..., :half]), -1) * sin

    def project(self, x: Any, cos: Any, sin: Any) -> Any:
        """Scaled queries [tokens, heads, head_dim]; keys, values [tokens, kv_heads, head_dim]."""
        heads, kv_heads, dim = self.heads, self.kv_heads, self.head_dim
        qkv = ops.matmul(normalise(x, self.eps), self.qkv) + self.bias
        qkv = qkv.reshape((-1, heads + 2 * kv_heads, dim))
        turned = self.rotate(qkv[:, : heads + kv_heads], cos, sin)
        return turned[:, :heads], turned[:, heads:], qkv[:, heads + kv_heads :]

    def finish(self, x: Any, attended: Any) -> Any:
        """Add attention's output [tokens, heads·head_dim] and the feed-forward output to x."""
        x = x + ops.matmul(attended, self.out)
        both = ops.matmul(normalise(x, self.eps), self.gate_up)
        half = both.shape[-1] // 2
        return x + ops.matmul(ops.silu(both[:, :half]) * both[:, half:], self.down)


def normalise(x: Any, eps: Any) -> Any:
    """RMSNorm over the last axis; its weight is part of the matrix that follows."""
    return x * ops.rsqrt(ops.mean(x * x, -1, True) + eps)


class Model(nn.Cell):
    """Embedding, layers, final norm, head and the rotary tables.

    ``output`` names the head's tensor, [outputs, hidden]; None: that of the vocabulary.
    """

    def __init__(
        self,
        shape: ModelShape,
        weights: dict[str, NDArray[np.float32]],
        output: str | None = None,
    ) -> None:
        super().__init__()
        embedding = weights["model.embed_tokens.weight"]
        tied = shape.tie_word_embeddings and output is None
        head = embedding if tied else weights[output or "lm_head.weight"]
        self.layers = nn.CellList([Layer(shape, weights, i) for i in range(shape.num_layers)])
        self.embedding = parameter(embedding, "embedding")
        self.head = parameter(weights["model.norm.weight"][:, None] * head.T, "head")
        self.eps = shape.rms_norm_eps
        exponents = np.arange(0, shape.head_dim, 2) / shape.head_dim
        angles = np.arange(shape.max_position_embedding)[:, None] / shape.theta**exponents
        angles = np.concatenate([angles, angles], -1)[:, None]  # [context, 1, head_dim]
        self.cos = parameter(np.cos(angles).astype(np.float32), "cos")
        self.sin = parameter(np.sin(angles).astype(np.float32), "sin")

    def embed(self, ids: Any, positions: Any) -> Any:
        """x [tokens, hidden] and the rotary tables' rows, for flat ids and positions [tokens]."""
        x = ops.gather(self.embedding, ids, 0)
        return x, ops.gather(self.cos, positions, 0), ops.gather(self.sin, positions, 0)

    def logits(self, x: Any) -> Any:
        """x [tokens, hidden] -> [tokens, outputs] float32."""
        return ops.matmul(normalise(x, self.eps), self.head)
