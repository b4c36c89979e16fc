"""The size of a rehearsal, by hand."""

from __future__ import annotations

import pytest
from rehearsals import cluster_config

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.rehearse.scale import scale
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.weights.model_config import ModelShape

QWEN = ModelShape(
    num_layers=64,
    hidden_size=5120,
    num_heads=40,
    n_kv_heads=8,
    intermediate_size=27648,
    vocab_size=152064,
    theta=1000000.0,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)


def layout(config: TrainConfig) -> tuple[int, int, int]:
    return config.data_parallel, config.model_parallel, config.pipeline_stage


def published(recipe: str, launch: str) -> TrainConfig:
    config = load_recipe(recipe, launch).stages["train"].config
    assert isinstance(config, TrainConfig)
    return config


@pytest.mark.parametrize(
    ("whole", "ranks", "expected"),
    [
        ((4, 8, 4), 8, (2, 2, 2)),
        ((4, 8, 4), 16, (2, 2, 4)),
        ((4, 8, 4), 32, (2, 4, 4)),
        ((1, 4, 2), 8, (1, 4, 2)),
        ((1, 8, 1), 8, (1, 8, 1)),
        ((8, 1, 1), 2, (2, 1, 1)),
    ],
)
def test_every_kind_of_parallelism_stays(
    whole: tuple[int, int, int], ranks: int, expected: tuple[int, int, int]
) -> None:
    config = cluster_config(*whole, compressed_mask=True, global_batch_size=128)
    assert layout(scale(config, QWEN, ranks).config) == expected


def test_too_few_ranks_are_refused() -> None:
    config = cluster_config(2, 2, 2)
    with pytest.raises(InputError, match="--ranks 4: the smallest rehearsal .* needs 8 ranks"):
        scale(config, QWEN, 4)


def test_a_laptop_has_nothing_to_rehearse() -> None:
    with pytest.raises(InputError, match="device is CPU: only a cluster's layout"):
        scale(cluster_config(1, 1, 1, device="CPU"), QWEN, 8)


def test_v15s_flags_stay_and_its_sizes_shrink() -> None:
    """DP 4 x TP 8 x PP 4, 128 rows of 51 200 tokens, 64 layers, float16."""
    scaled = scale(published("v15_opg", "atlas_910c_16x8"), QWEN, 8)
    config = scaled.config
    assert (config.sequence_parallel, config.optimizer_shard, config.recompute) == (True,) * 3
    assert (config.swap, config.swap_optimizer, config.compressed_mask) == (True,) * 3
    assert (config.loss, config.precision) == ("opg", "float16")
    # Two micro-batches of one row on each of two data-parallel ranks.
    assert (config.micro_batch_num, config.global_batch_size, config.seq_length) == (2, 4, 2048)
    assert (scaled.shape.num_layers, scaled.shape.num_heads, scaled.shape.n_kv_heads) == (2, 4, 2)
    assert scaled.shape.theta == QWEN.theta
    assert "model_parallel: 8 -> 2" in scaled.changed
    assert "model.num_layers: 64 -> 2" in scaled.changed
    assert not [line for line in scaled.changed if line.startswith("loss")]


def test_v1s_list_of_recomputed_layers_shrinks_with_the_layers() -> None:
    """23 and 18 of each stage's 32 layers; here each stage has one layer."""
    config = scale(published("v1_sft", "v1_dp8_tp8_pp2"), QWEN, 8).config
    assert config.recompute == [1, 1]
    assert config.select_recompute == published("v1_sft", "v1_dp8_tp8_pp2").select_recompute
    assert config.gradient_aggregation_group == 8


def test_the_one_process_gets_the_same_rows_at_once() -> None:
    scaled = scale(cluster_config(2, 2, 2), QWEN, 8)
    one = scaled.one_process()
    assert (one.devices, one.micro_batch_num) == (1, 1)
    assert one.global_batch_size == scaled.config.global_batch_size == 4
    assert one.seed == scaled.config.seed
