"""Reference implementations of MindFormers' kernels in NumPy float64, forward and backward.

    attention   P = softmax(q kᵀ / √D), −∞ where forbidden;   o = P v
    RMS norm    o = w x / √(mean x² + ε)
    rotary      o = x cos + (−x₂, x₁) sin,   angle = position · θ^(−2i/D)

Shapes: N query heads, K key-value heads (N a multiple of K), S tokens, D head size.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def attention(
    query: Array, key: Array, value: Array, forbidden: NDArray[np.bool_], cotangent: Array
) -> tuple[Array, Array, Array, Array]:
    """Compute attention with grouped queries, and its gradients.

    Args:
        query: [N, S, D].
        key: [K, S, D].
        value: [K, S, D].
        forbidden: [S, S], True where a query may not attend to a key.
        cotangent: [N, S, D], the gradient with respect to the output.

    Returns:
        The output [N, S, D], then the gradients with respect to query, key and value.
    """
    groups, scale = len(query) // len(key), query.shape[-1] ** -0.5
    keys, values = np.repeat(key, groups, 0), np.repeat(value, groups, 0)
    scores = np.where(forbidden, -np.inf, query @ keys.swapaxes(1, 2) * scale)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    output = shares @ values
    by_shares = cotangent @ values.swapaxes(1, 2)
    by_scores = shares * (by_shares - (by_shares * shares).sum(-1, keepdims=True)) * scale
    by_key, by_value = by_scores.swapaxes(1, 2) @ query, shares.swapaxes(1, 2) @ cotangent
    return output, by_scores @ keys, _by_group(by_key, groups), _by_group(by_value, groups)


def _by_group(gradient: Array, groups: int) -> Array:
    """Sum a gradient [N, S, D] over the ``groups`` query heads that share a key-value head."""
    return gradient.reshape(-1, groups, *gradient.shape[1:]).sum(1)


def rms_norm(
    x: Array, weight: Array, epsilon: float, cotangent: Array
) -> tuple[Array, Array, Array]:
    """Return the RMS norm of x [T, H], and the gradients with respect to x and the weight [H]."""
    root = np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
    normal, weighed = x / root, cotangent * weight
    by_x = (weighed - normal * (weighed * normal).mean(-1, keepdims=True)) / root
    return normal * weight, by_x, (cotangent * normal).sum(0)


def rotary(x: Array, theta: float, cotangent: Array) -> tuple[Array, Array]:
    """Return x [N, S, D] rotated for positions 0 to S − 1, and the gradient with respect to x."""
    length, size = x.shape[-2:]
    angles = np.outer(np.arange(length), theta ** (-np.arange(0, size, 2) / size))
    cos, sin = (np.concatenate([part, part], -1) for part in (np.cos(angles), np.sin(angles)))
    first, second = np.split(x, 2, -1)
    output = x * cos + np.concatenate([-second, first], -1) * sin
    back_first, back_second = np.split(cotangent * sin, 2, -1)
    return output, cotangent * cos + np.concatenate([back_second, -back_first], -1)
