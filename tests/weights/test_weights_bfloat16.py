"""Rounding to bfloat16, by hand and against PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from pcl_reasoner.weights.bfloat16 import round_chunk, rounded
from pcl_reasoner.weights.stream import read_files


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x3F800000, 0x3F80),  # 1.0
        (0x3F808000, 0x3F80),  # a tie goes to the even neighbour
        (0x3F818000, 0x3F82),
        (0x3F808001, 0x3F81),
        (0xBF80FFFF, 0xBF81),
        (0x7F7FFFFF, 0x7F80),  # larger than the largest bfloat16
        (0x7F800000, 0x7F80),
        (0x7FFFFFFF, 0x7FFF),  # NaN stays NaN
        (0x00000000, 0x0000),
    ],
)
def test_ties_go_to_the_even_neighbour_and_nan_stays(bits: int, expected: int) -> None:
    assert round_chunk(np.array([bits], "<u4")).tolist() == [expected]


def test_a_tensor_is_rounded_as_by_pytorch(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(0, 3, (300, 70)).astype(np.float32)
    save_file({"a": values, "n": np.arange(3)}, tmp_path / "x.safetensors")
    found = {name: rounded(one) for name, one in read_files([tmp_path / "x.safetensors"]).items()}
    assert (found["a"].dtype, found["a"].size, found["n"].dtype) == ("BF16", values.size * 2, "I64")
    data = np.frombuffer(b"".join(found["a"].chunks()), "<i2").reshape(values.shape)
    torchs = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    assert (data == torchs).all()
