"""Out of memory is called that, also when a library of C++ says it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pcl_reasoner.core.errors import StageError, is_out_of_memory, out_of_memory
from pcl_reasoner.curate.parts import reading


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 64 failed"),
        pa.ArrowException("realloc of size 64 failed"),
        RuntimeError("std::bad_alloc"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_memory_that_ran_out_is_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)
    said = str(out_of_memory("reading x.parquet", error))
    assert said.startswith("out of memory while reading x.parquet")
    assert "GiB" in said


def test_a_sound_file_is_not_called_damaged_when_memory_ran_out(tmp_path: Path) -> None:
    with (
        pytest.raises(StageError, match=r"out of memory while reading .*sound\.parquet"),
        reading(tmp_path / "sound.parquet"),
    ):
        raise pa.ArrowMemoryError("malloc of size 64 failed")


def test_other_errors_are_not_out_of_memory() -> None:
    assert not is_out_of_memory(ValueError("out of range"))
    assert not is_out_of_memory(pa.ArrowInvalid("not a Parquet file"))
