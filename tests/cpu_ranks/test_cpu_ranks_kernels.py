"""NumPy kernels: by hand, and gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pcl_reasoner.cpu_ranks import kernels

NONE = np.empty(0, np.uint8)
SCALE = 0.5
TOKENS, HEADS, WIDTH = 6, 2, 4
ENDS = [2, 6]
"""Two segments: tokens 0 and 1, tokens 2 to 5."""


def arrays(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(TOKENS, HEADS, WIDTH)).astype(np.float32) for _ in range(count)]


def settings(first: int, layout: str, mode: str) -> dict[str, str]:
    """Attributes of the last eight inputs: heads, keep, scale, two, one, layout, mode."""
    values = ["2", "1", str(SCALE), "0", "0", "0", layout, mode]
    return {f"in{first + index}": value for index, value in enumerate(values)}


def attend_compressed(query: Any, key: Any, value: Any) -> np.ndarray:
    ends = [np.array(end) for end in ENDS]
    inputs = [query, key, value, *[NONE] * 3, np.empty((8, 8), np.uint8), NONE, *ends, *ends]
    out = np.empty_like(query)
    unused = [np.empty(1, np.float32) for _ in range(3)]
    attributes = settings(len(inputs), "4", "3")
    kernels.flash_attention(attributes, [*inputs, *[NONE] * 8], [*unused, out])
    return out


def test_compressed_attention_by_hand() -> None:
    """The second token of a segment sees two values; the first token of the next sees its own."""
    query, key, value = arrays(3)
    out = attend_compressed(query, key, value)
    np.testing.assert_allclose(out[2], value[2], rtol=1e-6)
    scores = SCALE * np.einsum("nd,snd->ns", query[1], key[:2])
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(out[1], np.einsum("ns,snd->nd", shares, value[:2]), rtol=1e-5)


def test_dense_attention_is_the_compressed_one() -> None:
    query, key, value = arrays(3)
    segment = np.array([0, 0, 1, 1, 1, 1])
    allowed = np.tril(segment[:, None] == segment[None])
    mask = (~allowed)[None, None].astype(np.uint8)
    heads = [array.swapaxes(0, 1)[None] for array in (query, key, value)]
    inputs = [*heads, *[NONE] * 3, mask, *[NONE] * 3]
    out = np.empty_like(heads[0])
    attributes = settings(len(inputs), "1", "0")
    kernels.flash_attention(
        attributes, [*inputs, *[NONE] * 8], [np.empty(1, np.float32)] * 3 + [out]
    )
    expected = attend_compressed(query, key, value)
    np.testing.assert_allclose(out[0].swapaxes(0, 1), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_gradient_of_attention_is_a_difference(which: int) -> None:
    *heads, gradient = arrays(4)
    ends = [np.array(end) for end in ENDS]
    before = [*heads, gradient, *[NONE] * 3, np.empty((8, 8), np.uint8), *[NONE] * 5]
    inputs = [*before, *ends, *ends]
    found = [np.empty_like(one) for one in heads]
    attributes = settings(len(inputs), "4", "3")
    kernels.flash_attention_gradient(attributes, [*inputs, *[NONE] * 8], found)
    place, step = (1, 1, 2), 1e-2
    values = []
    for sign in (1, -1):
        moved = [one.copy() for one in heads]
        moved[which][place] += sign * step
        values.append(float((attend_compressed(*moved) * gradient).sum()))
    difference = (values[0] - values[1]) / (2 * step)
    assert found[which][place] == pytest.approx(difference, rel=1e-2, abs=1e-3)


def test_rms_norm_and_its_gradient_by_hand() -> None:
    """x = [3, 4]: mean square 12.5, r = 1 / sqrt(12.5)."""
    values = np.array([[3.0, 4.0]], np.float32)
    gamma = np.array([2.0, 1.0], np.float32)
    out, inverse = np.empty_like(values), np.empty((1, 1), np.float32)
    kernels.rms_norm({"epsilon": "0"}, [values, gamma], [out, inverse])
    np.testing.assert_allclose(inverse, [[12.5**-0.5]], rtol=1e-6)
    np.testing.assert_allclose(out, [[6 * 12.5**-0.5, 4 * 12.5**-0.5]], rtol=1e-6)
    by_values, by_gamma = np.empty_like(values), np.empty_like(gamma)
    gradient = np.array([[1.0, 0.0]], np.float32)
    inputs = [gradient, values, inverse, gamma]
    kernels.rms_norm_gradient({}, inputs, [by_values, by_gamma])
    # d = [2, 0], n = [3 r, 4 r], mean(d n) = 3 r: r (2 - 9 r^2), r (0 - 12 r^2)
    r = 12.5**-0.5
    np.testing.assert_allclose(by_values, [[r * (2 - 9 * r * r), -r * 12 * r * r]], rtol=1e-5)
    np.testing.assert_allclose(by_gamma, [3 * r, 0], rtol=1e-6)


def test_batch_matmul_broadcasts_and_transposes() -> None:
    first = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    second = np.ones((1, 3), np.float32)
    out = np.empty((1, 1, 2, 1), np.float32)
    attributes = {"in2": "false", "in3": "true"}
    kernels.batch_matmul(attributes, [first, second], [out])
    assert out.ravel().tolist() == [3, 12]


def test_softmax_by_hand() -> None:
    shares = np.empty((1, 2), np.float32)
    kernels.softmax({}, [np.array([[0.0, np.log(3)]], np.float32)], [shares])
    np.testing.assert_allclose(shares, [[0.25, 0.75]], rtol=1e-6)
