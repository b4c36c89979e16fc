"""Which ranks are compiled, at which size, and what a layout cannot divide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.precompile import compile_plan
from pcl_reasoner.precompile.compile_plan import BASE_BYTES, Layout
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.layout import layout_problems, stage_layers
from pcl_reasoner.train.shape import shape_of
from pcl_reasoner.weights.model_config import ModelShape

V15 = Layout(data=4, tensor=8, stages=4)
GB = 1_000_000_000
DEEP = 2 * 65_000_000 + 16 * 4_000_000
"""A layer in each of V1's two stages, with 16 micro-batches."""
SIXTEEN_HOSTS = Placement(hosts=[f"node{number}" for number in range(16)], devices_per_host=8)


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """V1's rendered MindFormers configuration."""
    recipe = load_recipe("v1_sft", "v1_dp8_tp8_pp2")
    return compile_plan.configuration(
        make_plan(recipe, tmp_path_factory.mktemp("runs"), until="train")
    )


def test_the_first_rank_of_every_stage_is_compiled() -> None:
    assert compile_plan.ranks_to_compile(V15, None) == [0, 32, 64, 96]
    assert compile_plan.ranks_to_compile(Layout(8, 8, 2), None) == [0, 64]
    assert [V15.stage_of(rank) for rank in (0, 31, 32, 127)] == [0, 0, 1, 3]


def test_ranks_may_be_named() -> None:
    assert compile_plan.ranks_to_compile(V15, "127,3,3") == [3, 127]
    assert compile_plan.ranks_to_compile(Layout(2, 2, 2), "all") == list(range(8))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0,128", "rank 128 does not exist; the layout has 128 ranks, 0 to 127"),
        ("0-3", "must be ranks"),
    ],
)
def test_other_ranks_are_an_error(given: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        compile_plan.ranks_to_compile(V15, given)


def test_groups_by_what_their_ranks_differ_in() -> None:
    # Rank 96 is in stage 3, at data place 0 and tensor place 0.
    assert V15.group_name(tuple(range(96, 104))) == "tensor 8"
    assert V15.group_name((96, 104, 112, 120)) == "data 4"
    assert V15.group_name((0, 32, 64, 96)) == "pipeline 4"
    assert V15.group_name(tuple(range(96, 128))) == "data x tensor 32"
    assert V15.group_name(tuple(range(128))) == "all 128"
    assert V15.group_name((96,)) == "alone 1"


def test_it_is_compiled_as_it_is_where_that_fits(v1: dict[str, Any]) -> None:
    needed = BASE_BYTES + 32 * DEEP
    job = compile_plan.plan_size(v1, "auto", needed)
    assert job.changed == [] and job.estimate == needed
    assert job.config["model"]["model_config"]["hidden_size"] == 5120


def test_else_with_as_many_layers_as_fit_at_full_width(v1: dict[str, Any]) -> None:
    """Room for 10 and a half layers in each of the two stages."""
    job = compile_plan.plan_size(v1, "auto", BASE_BYTES + 21 * DEEP // 2)
    model = job.config["model"]["model_config"]
    assert (model["num_layers"], model["hidden_size"]) == (20, 5120)
    # V1 recomputes 23 and 18 layers of its stages of 32.
    assert job.config["recompute_config"]["recompute"] == [10, 10]
    assert job.changed == ["num_layers: 64 -> 20", "recompute: [23, 18] -> [10, 10]"]
    assert v1["model"]["model_config"]["num_layers"] == 64, "the recipe's own is left alone"


def test_else_narrow_too_and_still_divisible(v1: dict[str, Any]) -> None:
    for job in (compile_plan.plan_size(v1, "auto", 1), compile_plan.plan_size(v1, "small", GB)):
        model = job.config["model"]["model_config"]
        assert model["hidden_size"] == 40 * 16 and model["vocab_size"] == 8 * 128
        assert model["pad_token_id"] < model["vocab_size"]
        assert compile_plan.problems(job.config, SIXTEEN_HOSTS) == []
        assert any(change.startswith("hidden_size: 5120 -> 640") for change in job.changed)
        # Small parameters are under the threshold at which optimizer states are sharded.
        assert "parallel_optimizer_threshold: 64 -> 0" in job.changed


def test_full_size_that_does_not_fit_is_an_error(v1: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match=r"needs about 7\.9 GB of memory per rank, but 7\.0 GB are free"
    ):
        compile_plan.plan_size(v1, "full", 7 * GB)


@pytest.mark.parametrize(
    ("recipe", "launch", "stage", "measured"),
    [
        ("v1_sft", "v1_dp8_tp8_pp2", "train", 7.6),
        ("v15_opg", "atlas_910c_16x8", "train", 6.6),
        # Few layers, and 128 micro-batches of each.
        ("v1_sft", "one_node_7b", "train", 10.1),
        # A second set of accumulators, and the update in a branch.
        ("am_thinking_v1", "atlas_910c_rl", "rl_1", 7.4),
    ],
)
def test_the_estimate_is_above_what_was_measured(
    recipe: str, launch: str, stage: str, measured: float, tmp_path: Path
) -> None:
    plan = make_plan(load_recipe(recipe, launch), tmp_path, until=stage)
    estimate = compile_plan.estimated_bytes(compile_plan.configuration(plan))
    assert measured * GB <= estimate < 1.25 * measured * GB


def test_free_memory_is_what_linux_calls_available(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemFree:  100 kB\nMemAvailable:     2048 kB\n")
    assert compile_plan.free_bytes(tmp_path / "meminfo") == 2 * 1024 * 1024


def test_a_laptop_has_nothing_to_compile(tmp_path: Path) -> None:
    plan = make_plan(load_recipe("v1_sft", "laptop"), tmp_path, until="train")
    with pytest.raises(InputError, match="device is CPU with launch file laptop"):
        compile_plan.configuration(plan)


def test_too_few_devices_are_an_error_before_anything_is_built(tmp_path: Path) -> None:
    """Native keys are merged last, so only what is rendered says how many ranks there are."""
    native = "train.mindformers={parallel_config: {model_parallel: 4, micro_batch_num: 1}}"
    recipe = load_recipe("v1_sft", "v1_dp8_tp8_pp2", overrides=(native,))
    with pytest.raises(InputError) as caught:
        compile_plan.configuration(make_plan(recipe, tmp_path, until="train"))
    assert "got 8 x 4 x 2 = 64 ranks for 16 hosts x 8 devices = 128" in str(caught.value)
    assert "a pipeline of 2 stages needs at least as many micro-batches, got 1" in str(caught.value)


QWEN = {
    "hidden_size": 5120,
    "num_heads": 40,
    "n_kv_heads": 8,
    "intermediate_size": 27648,
    "vocab_size": 152064,
    "num_layers": 64,
    "batch_size": 1,
    "seq_length": 32768,
}


def test_the_published_layouts_divide_everything() -> None:
    assert layout_problems(QWEN, 8, 2, True) == []
    assert layout_problems(QWEN, 8, 4, True) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab_size": 151643}, "vocab_size must be a multiple of model_parallel, got 151643"),
        ({"num_heads": 20, "n_kv_heads": 4}, "num_heads must be a multiple of model_parallel"),
        ({"n_kv_heads": 4}, "n_kv_heads must be a multiple of model_parallel, got 4 for 8"),
        ({"n_kv_heads": 16}, "num_heads must be a multiple of n_kv_heads, got 40 for 16"),
        ({"intermediate_size": 27644}, "intermediate_size must be a multiple of model_parallel"),
        ({"hidden_size": 5100}, "hidden_size must be a multiple of num_heads, got 5100 for 40"),
        ({"num_layers": 62}, "num_layers must be a multiple of pipeline_stage, got 62 for 4"),
        ({"offset": [1, 0, 0]}, "num_layers must be a multiple of pipeline_stage"),
        ({"seq_length": 32764}, "micro_batch_size x seq_length must be a multiple"),
    ],
)
def test_what_cannot_be_divided(change: dict[str, Any], said: str) -> None:
    assert said in layout_problems({**QWEN, **change}, 8, 4, True)[0]


def test_an_uneven_split_of_the_layers_is_no_error() -> None:
    assert stage_layers(62, 4, [1, 1, 0, 0]) == [16, 16, 15, 15]
    assert layout_problems({**QWEN, "num_layers": 62, "offset": [1, 1, 0, 0]}, 8, 4, True) == []


def test_a_recipe_is_told_so_when_it_is_checked() -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("v1_sft", "v1_dp8_tp8_pp2", overrides=("train.model.vocab_size=152060",))
    said = "stage train: vocab_size must be a multiple of model_parallel, got 152060 for 8"
    assert said in str(caught.value)


def test_native_keys_count_too() -> None:
    native = {"model": {"model_config": {"offset": [1, 0]}}}
    assert _train(num_layers=3, mindformers=native).layout_problems(None) == []
    with pytest.raises(ValueError, match="num_layers must be a multiple of pipeline_stage, got 3"):
        _train(num_layers=3)


def test_weights_that_cannot_be_divided_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "qwen2", "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 101,'
        ' "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,'
        ' "rms_norm_eps": 1e-6, "max_position_embeddings": 512}'
    )
    with pytest.raises(StageError, match="vocab_size must be a multiple .* got 101"):
        shape_of(_train(), tmp_path)


def _train(num_layers: int | None = None, **changes: Any) -> TrainConfig:
    shape = {"hidden_size": 64, "num_heads": 4, "n_kv_heads": 2, "intermediate_size": 128}
    model = ModelShape(num_layers=num_layers, vocab_size=512, **shape) if num_layers else None
    return TrainConfig(
        loss="sft",
        seed=0,
        epochs=1,
        learning_rate=1e-5,
        learning_rate_end=0.0,
        warmup_ratio=0.0,
        global_batch_size=4,
        seq_length=128,
        data_parallel=2,
        model_parallel=2,
        pipeline_stage=2,
        model=model,
        **changes,
    )
