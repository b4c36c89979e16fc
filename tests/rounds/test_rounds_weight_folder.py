from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pcl_reasoner.rounds.weight_folder import differ, shapes_of, version_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    weights = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.zeros(4, np.float32)}
    save_file(weights, tmp_path / "a" / "model.safetensors")
    return tmp_path / "a"


def test_a_difference_is_found_wherever_it_is(folder: Path, tmp_path: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    other = shutil.copytree(folder, tmp_path / "b") / "model.safetensors"
    assert not differ(folder, other.parent)
    for name in weights:
        changed = weights[name].copy()
        changed.reshape(-1)[-1] += 1
        save_file(weights | {name: changed}, other)
        assert differ(folder, other.parent)
    save_file({"x": weights["x"]}, other)
    assert differ(folder, other.parent) and differ(other.parent, folder)
    shutil.rmtree(other.parent)
    assert not differ(folder, other.parent)


def test_files_of_equal_weights_may_differ(folder: Path, tmp_path: Path) -> None:
    # An update without a gradient leaves the weights; the folder is written by another program.
    weights = load_file(folder / "model.safetensors")
    (tmp_path / "b").mkdir()
    save_file({"y": weights["y"]}, tmp_path / "b" / "model-1.safetensors")
    save_file({"x": weights["x"]}, tmp_path / "b" / "model-2.safetensors", {"format": "pt"})
    assert not differ(folder, tmp_path / "b")
    # A policy in bfloat16 whose first update is handed over in float32: nothing can be said.
    save_file({name: one.astype(np.float16) for name, one in weights.items()}, tmp_path / "h")
    (tmp_path / "c").mkdir()
    (tmp_path / "h").rename(tmp_path / "c" / "model.safetensors")
    assert not differ(folder, tmp_path / "c")


def test_shapes_and_the_version_of_the_files(folder: Path) -> None:
    assert shapes_of(folder) == {"x": (2, 3), "y": (4,)}
    before = version_of(folder)
    assert version_of(folder) == before
    save_file({"x": np.ones((2, 3), np.float32)}, folder / "model.safetensors")
    assert version_of(folder) != before
