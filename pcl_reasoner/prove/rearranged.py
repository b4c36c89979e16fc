"""Weights that are changed while they are read: rows in another order, or rounded values.

rows_in_order(tensor [4, 2], [1, 0, 3, 2])    the rows of two heads of two rows, each reversed
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.weights.bfloat16 import round_chunk
from pcl_reasoner.weights.stream import StoredTensor

Order = NDArray[np.int64]


def _later(tensor: StoredTensor, make: Callable[[], bytes]) -> StoredTensor:
    """Return a tensor of the same form whose bytes are made when they are read."""

    def chunks() -> Iterator[bytes]:
        yield make()

    return replace(tensor, chunks=chunks)


def rows_of(tensor: StoredTensor) -> NDArray[np.uint8]:
    """Read a tensor as [rows, bytes of a row]; a vector has rows of one value."""
    data = np.frombuffer(b"".join(tensor.chunks()), np.uint8)
    return data.reshape(tensor.shape[0], -1)


def rows_in_order(tensor: StoredTensor, order: Order) -> StoredTensor:
    """Return a tensor whose row i is row ``order[i]`` of another."""
    return _later(tensor, lambda: rows_of(tensor)[order].tobytes())


def rows_from(tensors: list[StoredTensor], order: Order, like: StoredTensor) -> StoredTensor:
    """Return a tensor whose row i is row ``order[i]`` of several tensors, one below the other."""
    return _later(like, lambda: np.concatenate([rows_of(one) for one in tensors])[order].tobytes())


def zeros(tensor: StoredTensor) -> StoredTensor:
    """Return a tensor of zeros."""
    return _later(tensor, lambda: bytes(tensor.size))


def rounded_to_bfloat16(tensor: StoredTensor) -> StoredTensor:
    """Return a float32 tensor whose values bfloat16 can represent; others unchanged."""

    def make() -> bytes:
        short = round_chunk(np.frombuffer(b"".join(tensor.chunks()), "<u4"))
        return (short.astype("<u4") << 16).astype("<u4").tobytes()

    return _later(tensor, make) if tensor.dtype == "F32" else tensor


def rounded_to_float16(tensor: StoredTensor) -> StoredTensor:
    """Return a float32 tensor whose values float16 can represent; others unchanged."""

    def make() -> bytes:
        wide = np.frombuffer(b"".join(tensor.chunks()), "<f4")
        with np.errstate(over="ignore"):
            return wide.astype("<f2").astype("<f4").tobytes()

    return _later(tensor, make) if tensor.dtype == "F32" else tensor
