"""Compares MindFormers' kernels with their NumPy definitions, forward and backward."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.hardware_check import references
from pcl_reasoner.hardware_check.devices import use_mindformers
from pcl_reasoner.hardware_check.outcome import Check, Outcome, Setting, compare
from pcl_reasoner.trainer import rows

HEADS, GROUPS, SIZE = 4, 2, 128
"""Number of query heads, number of key-value heads, and head size (as in the published models)."""
DENSE_LENGTH, COMPRESSED_LENGTH = 256, 2048
WIDTH, EPSILON, THETA = 5120, 1e-6, 1_000_000.0
PLACES = 128

TOLERANCES = {"float32": 1e-4, "float16": 2e-3, "bfloat16": 2e-2}
"""Largest allowed error / largest expected magnitude. Sources: docs/cluster/hardware_check.md."""

Array = NDArray[Any]


def kernels(setting: Setting, folder: Path) -> Outcome:
    """Check attention (dense and compressed mask), RMS norm and rotary embedding, per data type."""
    use_mindformers(setting.device)
    import mindformers.modules.flash_attention as flash_attention

    on_cpu = setting.device == "CPU"
    # A device's attention has no float32; a CPU's half precision differs from a device's.
    halves = () if on_cpu else ("bfloat16", "float16")
    # MindFormers' attention calls MindSpore's operator, or ours on a CPU.
    operator = str(flash_attention.FlashAttentionScore.__name__)
    outcome = Outcome(measured={"attention": operator, "fused_rms_norm": not on_cpu})
    for precision in halves or ("float32",):
        outcome.checks += [*dense_attention(precision), *compressed_attention(precision)]
    for precision in (*halves, "float32"):
        outcome.checks += rms_norm(precision, fused=not on_cpu)
        outcome.checks += rotary(precision, by_slices=on_cpu)
    return outcome


def drawn(shape: Sequence[int], seed: int) -> NDArray[np.float32]:
    """Return random numbers between −2 and 2, which are the same on every machine."""
    return np.random.default_rng(seed).random(tuple(shape), np.float32) * 4 - 2


def rounded(values: Array, precision: str) -> tuple[Any, NDArray[np.float64]]:
    """Return values rounded to ``precision``: as a tensor, and in float64 for the reference."""
    import mindspore as ms

    tensor = ms.Tensor(values).astype(getattr(ms, precision))
    return tensor, as_float64(tensor)


def as_float64(tensor: Any) -> NDArray[np.float64]:
    """Convert a tensor to float64, by way of float32 because NumPy has no bfloat16."""
    import mindspore as ms

    return np.asarray(tensor.astype(ms.float32).asnumpy(), np.float64)


def run_kernel(cell: Any, cotangent: Array, inputs: Sequence[Any], by: int) -> list[Array]:
    """Compile a kernel with its gradient and run it.

    Args:
        cell: The kernel.
        cotangent: The gradient with respect to its output.
        inputs: The kernel's inputs.
        by: Gradients are computed for the first ``by`` inputs and for all weights of the kernel.

    Returns:
        The output, then the gradients of the inputs and of the weights.
    """
    import mindspore as ms

    from pcl_reasoner.hardware_check.cells import Weighed

    weights = list(cell.trainable_params()) or None
    run = ms.value_and_grad(Weighed(cell), tuple(range(1, 1 + by)), weights, has_aux=True)
    (_, output), gradients = run(ms.Tensor(cotangent), *inputs)
    return [as_float64(output), *(as_float64(gradient) for gradient in _flat(gradients))]


def _flat(gradients: Any) -> Iterator[Any]:
    """Yield the tensors in nested tuples of gradients one by one; a single tensor as it is."""
    if isinstance(gradients, (tuple, list)):
        for one in gradients:
            yield from _flat(one)
    else:
        yield gradients


def checks_of(
    name: str, found: list[Array], expected: Sequence[Array], precision: str
) -> list[Check]:
    """Compare an output and its gradients with the output and gradients of the NumPy definition."""
    by = ("query", "key", "value") if len(expected) == 4 else ("x", "weight")[: len(expected) - 1]
    parts = ["output", *(f"gradient by {one}" for one in by)]
    return [
        compare(f"{name}, {precision}, {part}", got, wanted, TOLERANCES[precision])
        for part, got, wanted in zip(parts, found, expected, strict=True)
    ]


def _heads(length: int, precision: str) -> tuple[list[Any], list[NDArray[np.float64]], Array]:
    """Draw query, key and value [heads, S, D], as tensors and in float64, and a cotangent."""
    pairs = [
        rounded(drawn((heads, length, SIZE), seed), precision)
        for seed, heads in enumerate((HEADS, GROUPS, GROUPS))
    ]
    cotangent = drawn((HEADS, length, SIZE), 3)
    return [tensor for tensor, _ in pairs], [numbers for _, numbers in pairs], cotangent


def dense_attention(precision: str) -> list[Check]:
    """Check BNSD attention: grouped queries, and a dense mask of three segments and padding."""
    import mindspore as ms

    from pcl_reasoner.hardware_check.cells import Attention

    segments = np.repeat(np.arange(4, dtype=np.int32), (70, 100, 61, 25))
    mask = rows.attention_mask(segments)
    tensors, numbers, cotangent = _heads(DENSE_LENGTH, precision)
    inputs = [*(tensor.expand_dims(0) for tensor in tensors), ms.Tensor(mask[None]), None]
    cell = Attention(HEADS, SIZE, "BNSD", sparse_mode=0)
    found = [one[0] for one in run_kernel(cell, cotangent[None], inputs, 3)]
    query, key, value = numbers
    wide = cotangent.astype(np.float64)
    expected = references.attention(query, key, value, mask[0] == 1, wide)
    return checks_of("attention, dense mask", found, expected, precision)


def compressed_attention(precision: str) -> list[Check]:
    """Check TND attention as in the published runs: segment ends, and one mask for all rows."""
    import mindspore as ms

    from pcl_reasoner.hardware_check.cells import Attention

    length = COMPRESSED_LENGTH
    ends = np.array([300, 301, 1000, 1800], np.int32)
    padded = rows.compressed_ends(ends, length, PLACES)
    shared = np.triu(np.ones((2048, 2048), np.uint8), 1)
    tensors, numbers, cotangent = _heads(length, precision)
    inputs = [*(tensor.swapaxes(0, 1) for tensor in tensors), ms.Tensor(shared), ms.Tensor(padded)]
    cell = Attention(HEADS, SIZE, "TND", sparse_mode=8)
    by_token = np.ascontiguousarray(cotangent.swapaxes(0, 1))
    found = [one.swapaxes(0, 1) for one in run_kernel(cell, by_token, inputs, 3)]
    expected = [np.zeros(one.shape) for one in found]
    # Segment by segment, because computing the score matrix of a complete row takes long.
    for start, end in zip([0, *ends], [*ends, length], strict=True):
        later = np.triu(np.ones((end - start, end - start), bool), 1)
        query, key, value = (one[:, start:end] for one in numbers)
        wide = cotangent[:, start:end].astype(np.float64)
        segment = references.attention(query, key, value, later, wide)
        for row, part in zip(expected, segment, strict=True):
            row[:, start:end] = part
    return checks_of("attention, compressed mask", found, expected, precision)


def rms_norm(precision: str, fused: bool) -> list[Check]:
    """Check MindFormers' RMS norm, which computes in float32 for every input type."""
    import mindspore as ms
    from mindformers.models.llama.llama_layer import LlamaRMSNorm

    x, numbers = rounded(drawn((64, WIDTH), 0), precision)
    weight, cotangent = 1 + drawn((WIDTH,), 1) / 4, drawn((64, WIDTH), 2)
    cell = LlamaRMSNorm(WIDTH, EPSILON, ms.float32, fused)
    cell.weight.set_data(ms.Tensor(weight))
    found = run_kernel(cell, cotangent, [x], 1)
    wide = [array.astype(np.float64) for array in (weight, cotangent)]
    expected = references.rms_norm(numbers, wide[0], EPSILON, wide[1])
    return checks_of("RMS norm", found, expected, precision)


def rotary(precision: str, by_slices: bool) -> list[Check]:
    """Check MindFormers' rotary embedding.

    It swaps the halves of a head by slices (``by_slices``, for a CPU) or by a matrix product.
    """
    from pcl_reasoner.hardware_check.cells import Rotary

    shape = (HEADS, DENSE_LENGTH, SIZE)
    x, numbers = rounded(drawn(shape, 0), precision)
    cotangent = drawn(shape, 1)
    cell = Rotary(SIZE, DENSE_LENGTH, THETA, by_slices)
    found = [one[0] for one in run_kernel(cell, cotangent[None], [x.expand_dims(0)], 1)]
    expected = references.rotary(numbers, THETA, cotangent.astype(np.float64))
    return checks_of("rotary embedding", found, expected, precision)
