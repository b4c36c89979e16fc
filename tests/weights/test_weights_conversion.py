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
from transformers import AutoConfig, AutoModelForCausalLM
from weights_helpers import CONFIG, content, renamed, stored, write_random

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.train.stage import ExportConfig, export
from pcl_reasoner.weights import conversion
from pcl_reasoner.weights.model_config import ModelShape
from pcl_reasoner.weights.names import expected_shapes, mindformers_name
from pcl_reasoner.weights.stream import is_complete, read_files, weight_files, write_file


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"), layers=2)


def trained(folder: Path, policy: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A checkpoint as the train stage leaves it, with values that are not the policy's."""
    held = {
        mindformers_name(name): tensor + np.float32(0.125)
        for name, tensor in load_file(policy / "model.safetensors").items()
    }
    (folder / "checkpoint").mkdir(parents=True)
    save_file(held, folder / "checkpoint" / "model.safetensors")
    return folder, held


def run_export(policy: Path, checkpoint: Path, output: Path, **settings: Any) -> Counts:
    output.mkdir()
    inputs = {"policy": policy, "checkpoint": checkpoint}
    context = StageContext(name="export", quarantined=output / "quarantined.jsonl")
    return export(ExportConfig(**settings), inputs, output, context)


def test_names_are_mindformers_own(policy: Path) -> None:
    from mindformers.models.llama import LlamaForCausalLM

    names = list(read_files([policy / "model.safetensors"]))
    assert len(names) == 2 * 12 + 3
    for name in names:
        assert mindformers_name(name) == LlamaForCausalLM.convert_name(name)


@pytest.mark.parametrize("tied", [True, False])
def test_expected_shapes_are_transformers_own(tied: bool) -> None:
    config = {**CONFIG, "tie_word_embeddings": tied}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(**{key: config[key] for key in config if key != "architectures"})
        )
    found = {name: tuple(value.shape) for name, value in model.named_parameters()}
    shape = ModelShape(
        num_layers=2,
        hidden_size=64,
        num_heads=4,
        n_kv_heads=2,
        intermediate_size=192,
        vocab_size=272,
        tie_word_embeddings=tied,
    )
    assert expected_shapes(shape) == found
    assert len(found) == (26 if tied else 27)


@pytest.mark.parametrize("limit", [5_000_000_000, 60_000])
def test_a_round_trip_is_bit_exact_and_opens_in_transformers(
    policy: Path, tmp_path: Path, limit: int
) -> None:
    checkpoint, held = trained(tmp_path / "train", policy)
    output = tmp_path / "export"
    run_export(policy, checkpoint, output, max_shard_bytes=limit)

    files = weight_files(output)
    back = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert set(back) == set(read_files([policy / "model.safetensors"]))
    for name, tensor in back.items():
        assert tensor.tobytes() == held[mindformers_name(name)].tobytes(), name
    if limit < 1_000_000:
        # No tensor but the embeddings (272 x 64 x 4 bytes) is larger than a file may be.
        assert len(files) > 2
        index = json.loads((output / "model.safetensors.index.json").read_text())
        assert set(index["weight_map"]) == set(back)
        assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in back.values())
        assert all(
            name in read_files([output / file]) for name, file in index["weight_map"].items()
        )
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
    import hashlib

    checkpoint, held = trained(tmp_path / "train", policy)
    run_export(policy, checkpoint, tmp_path / "export")
    parity = json.loads((tmp_path / "export" / "parity.json").read_text())
    assert set(parity["tensors"]) == set(load_file(policy / "model.safetensors"))
    ours = "model.layers.1.feed_forward.w2.weight"
    assert parity["tensors"]["model.layers.1.mlp.down_proj.weight"] == {
        "mindformers": ours,
        "dtype": "F32",
        "shape": [64, 192],
        "sha256": hashlib.sha256(held[ours].tobytes()).hexdigest(),
    }
    assert parity["left_out"] == {}


def test_the_optimizers_state_is_left_out_and_counted(policy: Path, tmp_path: Path) -> None:
    checkpoint, held = trained(tmp_path / "train", policy)
    states = {f"{kind}.{name}": held[name] for name in held for kind in ("adam_m", "adam_v")}
    single = {"global_step": np.array([7]), "step_num": np.array(7), "step_figures": np.zeros(7)}
    save_file(held | states | single, checkpoint / "checkpoint" / "model.safetensors")
    counts = run_export(policy, checkpoint, tmp_path / "export")

    left_out = {"adam_m": 27, "adam_v": 27, "global_step": 1, "step_figures": 1, "step_num": 1}
    assert (counts.read, counts.kept, counts.dropped) == (27 * 3 + 3, 27, left_out)
    assert set(read_files([tmp_path / "export" / "model.safetensors"])) == set(
        read_files([policy / "model.safetensors"])
    )


def test_missing_misshapen_and_unexpected_tensors_are_named(policy: Path, tmp_path: Path) -> None:
    checkpoint, held = trained(tmp_path / "train", policy)
    held["model.layers.2.ffn_norm.weight"] = held.pop("model.layers.0.attention.wk.bias")
    w1 = held["model.layers.1.feed_forward.w1.weight"]
    held["model.layers.1.feed_forward.w1.weight"] = np.ascontiguousarray(w1.T)
    save_file(held, checkpoint / "checkpoint" / "model.safetensors")
    with pytest.raises(StageError) as caught:
        run_export(policy, checkpoint, tmp_path / "export")
    assert (
        "model.layers.0.self_attn.k_proj.bias (as model.layers.0.attention.wk.bias) is missing; "
        "model.layers.1.mlp.gate_proj.weight (as model.layers.1.feed_forward.w1.weight) has shape "
        "[64, 192], expected [192, 64]; model.layers.2.ffn_norm.weight is unexpected."
    ) in str(caught.value)


def test_a_head_that_is_tied_is_dropped_only_when_it_is_the_embeddings(tmp_path: Path) -> None:
    tensors = write_random(tmp_path / "tied", tie_word_embeddings=True)
    assert "lm_head.weight" not in tensors
    shape = conversion.shape_in(tmp_path / "tied")
    ours = renamed(tensors)
    same = ours["model.tok_embeddings.embedding_weight"]
    output = tmp_path / "out"
    output.mkdir()

    def written(head: Any) -> dict[str, Any]:
        held = {**ours, "lm_head.weight": head}
        return conversion.write_model(held, shape, tmp_path, output, "huggingface", 1 << 40)

    assert written(same)["left_out"] == {"lm_head.weight": 1}
    assert content(read_files(weight_files(output))) == content(tensors)
    other = stored(b"\1" * same.size, same.dtype, same.shape)
    with pytest.raises(StageError, match=r"lm_head\.weight differs from model\.tok_embeddings"):
        written(other)


def test_what_is_another_on_disk_than_what_was_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tensors of one shape that changed places while they were written."""
    tensors = write_random(tmp_path / "policy")
    gate, up = (f"model.layers.1.mlp.{name}_proj.weight" for name in ("gate", "up"))
    write = conversion.write_folder

    def exchanged(folder: Path, held: dict[str, Any], *rest: Any) -> dict[str, str]:
        hashes = write(folder, held, *rest)
        write(folder, {**held, gate: held[up], up: held[gate]}, *rest)
        return hashes

    monkeypatch.setattr(conversion, "write_folder", exchanged)
    shape = conversion.shape_in(tmp_path / "policy")
    with pytest.raises(StageError, match=rf"differ from the source after writing: {gate}, {up}\."):
        conversion.write_model(renamed(tensors), shape, tmp_path, tmp_path, "huggingface", 1 << 40)


@pytest.mark.parametrize("left", [0, 4, 8, 200, -1])
def test_a_file_that_is_cut_off_is_not_whole(policy: Path, tmp_path: Path, left: int) -> None:
    whole = policy / "model.safetensors"
    assert is_complete(whole)
    broken = tmp_path / "broken.safetensors"
    data = whole.read_bytes()
    broken.write_bytes(data[:left] if left >= 0 else data[:-1])
    assert not is_complete(broken)
    with pytest.raises(StageError, match="truncated"):
        read_files([broken])
    assert not is_complete(tmp_path / "absent.safetensors")


def test_a_folder_without_all_its_weights_is_refused(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="no safetensors file"):
        weight_files(tmp_path)
    shutil.copy(policy / "model.safetensors", tmp_path / "model-00001-of-00002.safetensors")
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"weight_map": dict(zip(("a", "b"), names, strict=True))}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(StageError, match="missing model-00002-of-00002.safetensors"):
        weight_files(tmp_path)


def test_a_tensor_in_two_files_is_refused(policy: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copy(policy / "model.safetensors", tmp_path / f"{name}.safetensors")
    with pytest.raises(StageError, match=r"b\.safetensors: .* is also in another file"):
        read_files(weight_files(tmp_path))


def test_types_of_unequal_width_stay_aligned_and_readable(tmp_path: Path) -> None:
    """The reference library checks offsets, lengths and the header."""
    held = {
        "three": np.arange(3, dtype=np.float16),
        "none": np.zeros((0, 4), np.float32),
        "one": np.array(2.5),
        "wide": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bytes": np.arange(5, dtype=np.uint8),
    }
    save_file(held, tmp_path / "theirs.safetensors")
    tensors = read_files([tmp_path / "theirs.safetensors"])
    write_file(tmp_path / "ours.safetensors", {name: tensors[name] for name in held}, "mindformers")
    back = load_file(tmp_path / "ours.safetensors")
    assert set(back) == set(held)
    for name, value in held.items():
        assert (back[name].dtype, back[name].shape) == (value.dtype, value.shape)
        assert back[name].tobytes() == value.tobytes()
    data = (tmp_path / "ours.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + length])
    for name, value in held.items():
        if value.size == 0:
            continue
        assert (8 + length + entries[name]["data_offsets"][0]) % value.itemsize == 0, name
