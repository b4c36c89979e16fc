"""The MindFormers YAML: every key of V1's published file, with V1's values where it runs V1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import HELPERS
from train_helpers import train_config, write_policy

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.train.compare import flatten
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.render import render, to_yaml
from pcl_reasoner.train.shape import shape_of
from pcl_reasoner.weights.model_config import ModelShape, read_shape

PUBLISHED = HELPERS / "published_v1.yaml"
PATHS = {"packs": "../pack", "policy": "../policy", "metrics": "m.jsonl", "output_dir": "work"}

SMALL = ModelShape(
    num_layers=1, hidden_size=8, num_heads=1, n_kv_heads=1, intermediate_size=8, vocab_size=8
)


def v1() -> dict[str, Any]:
    """V1 as published, rendered for its own 128 devices, before any weights are at hand."""
    config = load_recipe("v1_sft", "v1_dp8_tp8_pp2").stages["train"].config
    assert isinstance(config, TrainConfig)
    return render(config, shape_of(config, Path("absent")), {**PATHS, "row_count": "207272"})


def test_every_published_key_is_there() -> None:
    published = flatten(yaml.safe_load(PUBLISHED.read_text()))
    assert len(published) > 150
    assert not published.keys() - flatten(v1()).keys()


def test_v1_has_its_published_values() -> None:
    found = flatten(v1())
    expected = {
        "runner_config.batch_size": 1,
        "runner_config.sink_mode": True,
        "runner_wrapper.use_clip_grad": True,
        "optimizer.type": "AdamW",
        "optimizer.betas": [0.9, 0.95],
        "optimizer.eps": 1e-8,
        "optimizer.weight_decay": 0.0,
        "lr_schedule.type": "CosineWithWarmUpLR",
        "lr_schedule.learning_rate": 6e-5,
        "lr_schedule.lr_end": 1e-7,
        "lr_schedule.warmup_ratio": 0.05,
        "parallel_config.data_parallel": 8,
        "parallel_config.model_parallel": 8,
        "parallel_config.pipeline_stage": 2,
        "parallel_config.use_seq_parallel": True,
        "parallel_config.optimizer_shard": True,
        "parallel_config.micro_batch_num": 16,
        "parallel.parallel_mode": 1,
        "parallel.enable_parallel_optimizer": True,
        "use_parallel": True,
        "auto_trans_ckpt": True,
        "recompute_config.recompute": [23, 18],
        "callbacks.CheckpointMonitor.save_checkpoint_steps": 100,
        "callbacks.CheckpointMonitor.keep_checkpoint_max": 10,
        "callbacks.CheckpointMonitor.checkpoint_format": "safetensors",
        "context.device_target": "Ascend",
        "context.mode": 0,
        "model.model_config.num_layers": 64,
        "model.model_config.hidden_size": 5120,
        "model.model_config.num_heads": 40,
        "model.model_config.n_kv_heads": 8,
        "model.model_config.intermediate_size": 27648,
        "model.model_config.vocab_size": 152064,
        "model.model_config.qkv_has_bias": True,
        "model.model_config.rms_norm_eps": 1e-5,
        "model.model_config.theta": 1e6,
        "model.model_config.seq_length": 32768,
        "model.model_config.compute_dtype": "bfloat16",
        "model.model_config.param_init_type": "float32",
        "model.model_config.layernorm_compute_type": "float32",
        "model.model_config.softmax_compute_type": "float32",
        "model.model_config.rotary_dtype": "float32",
        "model.model_config.use_flash_attention": True,
        "model.model_config.use_eod_attn_mask_compression": True,
        "model.model_config.loss": "sft",
        "model.model_config.kv_channels": 128,
        "model.model_config.rotary_emb_base": 1_000_000,
        "train_dataset.data_loader.epochs": 4,
        "train_dataset.data_loader.global_batch_size": 128,
        "train_dataset.data_loader.adaptor_config.compress_mask": True,
        "train_dataset.data_loader.mock_config.seq_length": 32768,
        "train_dataset.data_loader.mock_config.eod_pad_length": 128,
        # 207 272 rows x 4 epochs / 8 data-parallel ranks
        "train_dataset.data_loader.mock_config.size": 103636,
        # 128 rows a step / 8 ranks: 16 micro-batches, by whose number MindFormers divides.
        "train_dataset.data_loader.gradient_scale": 16.0,
    }
    assert {key: found[key] for key in expected} == expected


def test_every_column_has_a_shard_and_the_mask_is_last() -> None:
    value = v1()
    columns = value["train_dataset"]["input_columns"]
    assert columns[-1] == "actual_seq_len"
    assert columns == value["train_dataset"]["construct_args_key"]
    assert value["parallel"]["dataset_strategy"] == [[8, 1]] * len(columns)


def test_a_laptop_gets_what_a_cpu_can_run() -> None:
    found = flatten(render(train_config(), SMALL, PATHS))
    expected = {
        # Off, a packed mask would be added to the scores without an error.
        "model.model_config.use_flash_attention": True,
        "model.model_config.fused_rms_norm": False,
        "model.model_config.use_rope_slice": True,
        "model.model_config.compute_dtype": "float32",
        "context.device_target": "CPU",
        "runner_config.sink_mode": False,
        "use_parallel": False,
        "parallel.parallel_mode": 0,
        "auto_trans_ckpt": False,
        "runner_config.batch_size": 2,
    }
    assert {key: found[key] for key in expected} == expected
    assert not [key for key in found if key.startswith("context.ascend_config")]


def test_in_a_pipeline_the_last_stage_writes_the_loss() -> None:
    (metrics,) = [one for one in v1()["callbacks"] if one["type"] == "PclMetrics"]
    # 128 ranks in 2 stages: ranks 64 to 127 have the loss.
    assert (metrics["rank"], metrics["loss_divisor"]) == (64, 16.0)
    (laptop,) = [
        one
        for one in render(train_config(), SMALL, PATHS)["callbacks"]
        if one["type"] == "PclMetrics"
    ]
    assert "rank" not in laptop and "loss_divisor" not in laptop


def test_two_ranks_on_a_cpu_weigh_twice_what_they_then_average() -> None:
    config = train_config(data_parallel=2)
    found = flatten(render(config, SMALL, PATHS))
    assert found["use_parallel"] is True
    assert found["parallel.gradients_mean"] is True
    assert found["train_dataset.data_loader.gradient_scale"] == 2.0
    assert found["parallel_config.data_parallel"] == 2


def test_several_npus_load_a_complete_folder_only_by_cutting_it() -> None:
    """MindFormers refuses it otherwise, with data parallelism alone too."""
    several = train_config(device="Ascend", precision="bfloat16", data_parallel=2)
    assert render(several, SMALL, PATHS)["auto_trans_ckpt"] is True
    single = train_config(device="Ascend", precision="bfloat16")
    assert render(single, SMALL, PATHS)["auto_trans_ckpt"] is False


def test_native_keys_are_merged_last() -> None:
    native = {
        "optimizer": {"weight_decay": 0.5},
        "model": {"model_config": {"use_flash_attention": False, "new_key": [1, 2]}},
        "profile": True,
    }
    plain = flatten(render(train_config(), SMALL, PATHS))
    merged = flatten(render(train_config(mindformers=native), SMALL, PATHS))
    assert {key: value for key, value in merged.items() if plain.get(key) != value} == {
        "optimizer.weight_decay": 0.5,
        "model.model_config.use_flash_attention": False,
        "model.model_config.new_key": [1, 2],
        "profile": True,
    }


def test_float16_has_a_loss_scale_and_bfloat16_has_none() -> None:
    half = train_config(device="Ascend", precision="float16", loss_scale=4096)
    scale = render(half, SMALL, PATHS)["runner_wrapper"]["scale_sense"]
    assert scale["loss_scale_value"] == 4096
    other = train_config(device="Ascend", precision="bfloat16")
    assert "scale_sense" not in render(other, SMALL, PATHS)["runner_wrapper"]


def test_a_resumed_run_names_its_checkpoint() -> None:
    def loaded(devices: int, **paths: str) -> tuple[object, object]:
        found = render(train_config(data_parallel=devices), SMALL, {**PATHS, **paths})
        return found["load_checkpoint"], found["resume_training"]

    assert loaded(1) == ("../policy", False)
    assert loaded(2, start="work/start") == ("work/start", False)
    name = "policy_rank_0-1_5.safetensors"
    assert loaded(1, start=f"work/resume/{name}", resume=name) == (f"work/resume/{name}", True)
    # Several ranks find their own file by this name, each in its folder.
    assert loaded(2, start="work/checkpoint", resume=name) == ("work/checkpoint", name)


def test_the_yaml_reads_back_as_it_was(tmp_path: Path) -> None:
    value = v1()
    text = to_yaml(value)
    assert yaml.safe_load(text) == value
    assert "&id" not in text


def test_the_shape_is_the_weights_own(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy")
    expected = ModelShape(
        num_layers=1,
        hidden_size=64,
        num_heads=2,
        n_kv_heads=1,
        intermediate_size=192,
        vocab_size=272,
        rms_norm_eps=1e-6,
        theta=10000.0,
        max_position_embedding=512,
        eos_token_id=2,
        pad_token_id=0,
    )
    assert read_shape(policy) == expected
    assert shape_of(train_config(model={**expected.model_dump(), "theta": 10000}), policy)


def test_a_recipe_that_contradicts_the_weights_names_every_key(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy")
    given = {
        "num_layers": 2,
        "hidden_size": 64,
        "num_heads": 2,
        "n_kv_heads": 1,
        "intermediate_size": 192,
        "vocab_size": 272,
        "theta": 1e6,
    }
    with pytest.raises(StageError) as caught:
        shape_of(train_config(model=given), policy)
    assert "num_layers is 2 in the recipe, 1 in the weights" in str(caught.value)
    assert "theta is 1000000.0 in the recipe, 10000.0 in the weights" in str(caught.value)
    # What the recipe leaves out contradicts nothing, whatever its default.
    assert "rms_norm_eps" not in str(caught.value)


def test_weights_of_another_kind_or_none_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="the model's shape is unknown"):
        shape_of(train_config(), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(StageError, match="model_type is 'llama', expected 'qwen2'"):
        shape_of(train_config(), tmp_path)
