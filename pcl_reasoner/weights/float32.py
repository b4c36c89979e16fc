"""Reads all tensors of a small model into memory, as float32.

This module exists because the safetensors library's NumPy interface rejects bfloat16.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.weights.stream import StoredTensor, read_files, weight_files

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def read_weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Read all tensors of a model's folder, by name; bfloat16 and float16 are widened to float32.

    Raises:
        StageError: A file is missing or damaged, or a tensor has none of these three types.
    """
    tensors = read_files(weight_files(folder))
    return {name: _as_float32(folder, name, tensor) for name, tensor in tensors.items()}


def _as_float32(folder: Path, name: str, tensor: StoredTensor) -> NDArray[np.float32]:
    if tensor.dtype not in _DTYPES:
        raise StageError(
            f"{folder}: {name} is {tensor.dtype}, the local sampler reads {', '.join(_DTYPES)}. "
            "Export the model in one of these."
        )
    values = np.frombuffer(b"".join(tensor.chunks()), _DTYPES[tensor.dtype])
    if tensor.dtype == "BF16":  # the upper half of a float32
        values = (values.astype(np.uint32) << 16).view("<f4")
    return values.astype(np.float32).reshape(tensor.shape)
