"""Rounds tensors to bfloat16 while they are written, one chunk at a time.

float32 1.00390625 = 0x3f808000 lies between two values; the tie goes to the even one: 0x3f80, 1.0
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.weights.stream import StoredTensor


def rounded(tensor: StoredTensor) -> StoredTensor:
    """Return a float32 tensor in bfloat16, rounded to nearest, ties to even; others unchanged."""
    if tensor.dtype != "F32":
        return tensor

    def chunks() -> Iterator[bytes]:
        for chunk in tensor.chunks():
            yield round_chunk(np.frombuffer(chunk, "<u4")).tobytes()

    return replace(tensor, dtype="BF16", size=tensor.size // 2, chunks=chunks)


def round_chunk(bits: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Return the bfloat16 of float32 values, both as unsigned integers; NaN stays NaN."""
    wide = bits.astype(np.uint64)
    found = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype("<u2")
    # Rounding up could turn a NaN into infinity or zero.
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, ((bits >> 16) | 0x40).astype("<u2"), found)
