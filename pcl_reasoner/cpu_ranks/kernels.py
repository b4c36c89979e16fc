"""NumPy in place of operators that have no CPU kernel in MindSpore, or only an approximate one.

They have the interfaces of the Ascend operators, so a rank runs the graph that was compiled for
Ascend. They show nothing about the NPU's kernels.
"""

import numpy as np

from pcl_reasoner.cpu_ranks.collectives import Array, Arrays, Attributes, Kernel
from pcl_reasoner.trainer import segment_attention as segments

_TND = "4"
"""MindSpore's number of the layout TND; other layouts here are BNSD."""
_CAUSAL = "2"
"""sparse_mode in which the mask is causal within the complete row."""


def _heads_first(array: Array, layout: str) -> Array:
    """[T, N, D] -> [1, N, T, D]; BNSD stays."""
    return array.swapaxes(0, 1)[None] if layout == _TND else array


def _heads_second(array: Array, layout: str) -> Array:
    return array[0].swapaxes(0, 1) if layout == _TND else array


def _tiles(query: Array, mask: Array, ends: Array, layout: str, mode: str) -> list[segments.Tile]:
    """Return the tiles of queries and keys that the operator's mask allows."""
    rows, _, length, _ = query.shape
    if layout == _TND:
        return list(segments.tiles(0, segments.spans_of_ends(ends.ravel(), length)))
    if mode == _CAUSAL:
        return [tile for row in range(rows) for tile in segments.tiles(row, [(0, length)])]
    return segments.tiles_of_masks(mask)


def _attention(
    attributes: Attributes, inputs: Arrays, arrays: int, mask: int, ends: int
) -> tuple[Arrays, list[segments.Tile], float, str]:
    """Return query, key, value …, the tiles, the scores' factor and the layout.

    The last inputs are eight settings. The segments' ends come before them, once for queries and
    once for keys, and each end is an input of its own.

    Args:
        attributes: The operator's attributes; ``in7`` is the value of the input 7.
        inputs: The operator's inputs.
        arrays: Number of first inputs in the layout.
        mask: Index of the mask.
        ends: Index of the first end.
    """
    count = len(inputs)
    scale, layout, mode = (attributes[f"in{count - back}"] for back in (6, 2, 1))
    found = [end.ravel() for end in inputs[ends : count - 8]]
    heads = [_heads_first(array, layout) for array in inputs[:arrays]]
    queries = np.concatenate(found[: len(found) // 2])
    tiles = _tiles(heads[0], inputs[mask], queries, layout, mode)
    return heads, tiles, float(scale), layout


def flash_attention(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """FlashAttentionScore: query, key, value, …, mask (7th), prefix, ends, settings."""
    heads, tiles, scale, layout = _attention(attributes, inputs, 3, mask=6, ends=8)
    query, key, value = heads
    found = segments.attend(query, key, value, tiles, scale)
    # The gradient computes the softmax again, so its maximum and sum are not needed.
    for unused in outputs[:3]:
        unused[...] = 0
    outputs[3][...] = _heads_second(found, layout)


def flash_attention_gradient(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """FlashAttentionScoreGrad: query, key, value, gradient, …, mask (8th), …, ends, settings."""
    heads, tiles, scale, layout = _attention(attributes, inputs, 4, mask=7, ends=13)
    query, key, value, gradient = heads
    found = segments.attend_backward(query, key, value, gradient, tiles, scale)
    for output, array in zip(outputs, found, strict=False):
        output[...] = _heads_second(array, layout)


def rms_norm(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """RmsNorm: x · r · gamma with r = 1 / √(mean x² + ε); the second output is r."""
    values, gamma = inputs[:2]
    epsilon = np.float32(attributes.get("in2") or attributes["epsilon"])
    inverse = 1 / np.sqrt((values * values).mean(-1, keepdims=True) + epsilon)
    outputs[0][...] = values * inverse * gamma
    outputs[1][...] = inverse.reshape(outputs[1].shape)


def rms_norm_gradient(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """RmsNormGrad: with n = x · r and d = g · gamma, ∂x = r (d − n · mean(d · n))."""
    gradient, values, inverse, gamma = inputs[:4]
    inverse = inverse.reshape(*values.shape[:-1], 1)
    normed, scaled = values * inverse, gradient * gamma
    outputs[0][...] = inverse * (scaled - normed * (scaled * normed).mean(-1, keepdims=True))
    by_gamma = (gradient * normed).reshape(-1, gamma.size).sum(0)
    outputs[1][...] = by_gamma.reshape(outputs[1].shape)


def batch_matmul(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """BatchMatMul with broadcast batches, which MindSpore's CPU kernel lacks."""
    first, second = inputs[:2]
    if attributes.get("in2", attributes.get("transpose_a")) == "true":
        first = first.swapaxes(-1, -2)
    if attributes.get("in3", attributes.get("transpose_b")) == "true":
        second = second.swapaxes(-1, -2)
    np.matmul(first, second, out=outputs[0])


def no_overflow(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """The NPU's overflow status: 0, because nothing on a CPU sets it."""
    for output in outputs:
        output[...] = 0


def exponential(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """Exp."""
    np.exp(inputs[0], out=outputs[0])


def logarithm(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """Log, to the base e."""
    np.log(inputs[0], out=outputs[0])


def _refuse_other_axes(attributes: Attributes, inputs: Arrays) -> None:
    axis = attributes.get("in1", attributes.get("axis", "-1")).strip("()[], ")
    if axis not in ("-1", str(inputs[0].ndim - 1)):
        raise ValueError(f"softmax over axis {axis} of {inputs[0].shape}: expected the last axis")


def log_softmax(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """LogSoftmax over the last axis."""
    _refuse_other_axes(attributes, inputs)
    below = inputs[0] - inputs[0].max(-1, keepdims=True)
    outputs[0][...] = below - np.log(np.exp(below).sum(-1, keepdims=True))


def softmax(attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """Softmax over the last axis."""
    _refuse_other_axes(attributes, inputs)
    shares = np.exp(inputs[0] - inputs[0].max(-1, keepdims=True))
    outputs[0][...] = shares / shares.sum(-1, keepdims=True)


MISSING: dict[str, Kernel] = {
    "FlashAttentionScore": flash_attention,
    "FlashAttentionScoreGrad": flash_attention_gradient,
    "RmsNorm": rms_norm,
    "RmsNormGrad": rms_norm_gradient,
    "BatchMatMul": batch_matmul,
    "NPUAllocFloatStatus": no_overflow,
    "NPUGetFloatStatusV2": no_overflow,
    "NPUClearFloatStatusV2": no_overflow,
}
"""Operators without a CPU kernel, or whose CPU kernel has a narrower interface."""

EXACT: dict[str, Kernel] = {
    "Exp": exponential,
    "Log": logarithm,
    "LogSoftmax": log_softmax,
    "Softmax": softmax,
}
"""In float32, over the last axis. MindSpore's own kernels on a CPU are good to about 4e-6."""
