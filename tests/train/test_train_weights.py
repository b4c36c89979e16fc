"""Weights between Hugging Face's names and MindFormers', and files that are not whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from train_helpers import write_policy
from transformers import AutoModelForCausalLM

from pcl_reasoner.errors import StageError
from pcl_reasoner.stage import StageContext
from pcl_reasoner.train import weights
from pcl_reasoner.train.stage import ExportConfig, export


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"), layers=2)


def trained(folder: Path, policy: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A checkpoint as the train stage leaves it, with values that are not the policy's."""
    held = {
        weights.mindformers_name(name): tensor + np.float32(0.125)
        for name, tensor in load_file(policy / "model.safetensors").items()
    }
    (folder / "checkpoint").mkdir(parents=True)
    save_file(held, folder / "checkpoint" / "model.safetensors")
    return folder, held


def run_export(policy: Path, checkpoint: Path, output: Path, **settings: Any) -> None:
    output.mkdir()
    inputs = {"policy": policy, "checkpoint": checkpoint}
    context = StageContext(name="export", kept_apart=output / "kept_apart.jsonl")
    export(ExportConfig(**settings), inputs, output, context)


def test_names_are_mindformers_own(policy: Path) -> None:
    from mindformers.models.llama import LlamaForCausalLM

    names = list(weights.header(policy / "model.safetensors"))
    assert len(names) == 2 * 12 + 3
    for name in names:
        assert weights.mindformers_name(name) == LlamaForCausalLM.convert_name(name)


@pytest.mark.parametrize("limit", [5_000_000_000, 60_000])
def test_a_round_trip_is_bit_exact_and_opens_in_transformers(
    policy: Path, tmp_path: Path, limit: int
) -> None:
    checkpoint, held = trained(tmp_path / "train", policy)
    output = tmp_path / "export"
    run_export(policy, checkpoint, output, max_shard_bytes=limit)

    files = weights.weight_files(output)
    back = dict(weights.tensors(files))
    assert set(back) == set(weights.header(policy / "model.safetensors"))
    for name, tensor in back.items():
        assert tensor.tobytes() == held[weights.mindformers_name(name)].tobytes(), name
    if limit < 1_000_000:
        # No tensor but the embeddings (272 x 64 x 4 bytes) is larger than a file may be.
        assert len(files) > 2
        index = json.loads((output / "model.safetensors.index.json").read_text())["weight_map"]
        assert set(index) == set(back)
        assert all(name in weights.header(output / file) for name, file in index.items())
    else:
        assert [path.name for path in files] == ["model.safetensors"]

    expected = AutoModelForCausalLM.from_pretrained(policy)
    with torch.no_grad():
        for value in expected.parameters():
            value += 0.125
        ids = torch.arange(3, 40)[None]
        found = AutoModelForCausalLM.from_pretrained(output)
        assert torch.equal(found(ids).logits, expected(ids).logits)
    for name in (
        "tokenizer.json",
        "tokenizer_config.json",
        "config.json",
        "generation_config.json",
    ):
        assert (output / name).read_bytes() == (policy / name).read_bytes()


def test_parity_names_every_tensor_with_its_hash(policy: Path, tmp_path: Path) -> None:
    checkpoint, held = trained(tmp_path / "train", policy)
    run_export(policy, checkpoint, tmp_path / "export")
    parity = json.loads((tmp_path / "export" / "parity.json").read_text())["tensors"]
    assert set(parity) == set(load_file(policy / "model.safetensors"))
    ours = "model.layers.1.feed_forward.w2.weight"
    assert parity["model.layers.1.mlp.down_proj.weight"] == {
        "mindformers": ours,
        "sha256_16": weights.tensor_hash(held[ours]),
    }


def test_a_hash_tells_values_shapes_and_types_apart() -> None:
    base = np.arange(6, dtype=np.float32)
    hashes = {
        weights.tensor_hash(array)
        for array in (base, base.reshape(2, 3), base.view(np.int32), -base, base[::-1])
    }
    assert len(hashes) == 5
    assert weights.tensor_hash(base[::-1][::-1]) == weights.tensor_hash(base)


def test_missing_and_misshapen_tensors_are_named(policy: Path, tmp_path: Path) -> None:
    checkpoint, held = trained(tmp_path / "train", policy)
    del held["model.layers.0.attention.wk.bias"]
    w1 = held["model.layers.1.feed_forward.w1.weight"]
    held["model.layers.1.feed_forward.w1.weight"] = np.ascontiguousarray(w1.T)
    save_file(held, checkpoint / "checkpoint" / "model.safetensors")
    with pytest.raises(StageError) as caught:
        run_export(policy, checkpoint, tmp_path / "export")
    assert (
        "model.layers.0.self_attn.k_proj.bias (as model.layers.0.attention.wk.bias) is missing; "
        "model.layers.1.mlp.gate_proj.weight has shape [64, 192], expected [192, 64]."
    ) in str(caught.value)


@pytest.mark.parametrize("left", [0, 4, 8, 200, -1])
def test_a_file_that_is_cut_off_is_not_whole(policy: Path, tmp_path: Path, left: int) -> None:
    whole = policy / "model.safetensors"
    assert weights.is_whole(whole)
    broken = tmp_path / "broken.safetensors"
    data = whole.read_bytes()
    broken.write_bytes(data[:left] if left >= 0 else data[:-1])
    assert not weights.is_whole(broken)
    with pytest.raises(StageError, match="cut off"):
        weights.header(broken)
    assert not weights.is_whole(tmp_path / "absent.safetensors")


def test_a_folder_without_all_its_weights_is_refused(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="no safetensors file"):
        weights.weight_files(tmp_path)
    shutil.copy(policy / "model.safetensors", tmp_path / "model-00001-of-00002.safetensors")
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"weight_map": dict(zip(("a", "b"), names, strict=True))}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(StageError, match="missing model-00002-of-00002.safetensors"):
        weights.weight_files(tmp_path)
