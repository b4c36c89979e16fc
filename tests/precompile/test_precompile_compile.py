"""Front-end parallel compiles of a tiny model: 2 data x 2 tensor x 2 pipeline ranks."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest
from paths import HELPERS

from pcl_reasoner.cli.main import main
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.precompile import compile_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="steps into the x86-64 wheel"),
]

MODEL = (
    "train.model={num_layers: 4, hidden_size: 64, num_heads: 4, n_kv_heads: 2, "
    "intermediate_size: 128, vocab_size: 512, eos_token_id: 0, pad_token_id: 0}"
)
# Tiny parameters are under the size (KB) from which optimizer states are sharded.
SHARDED = (
    "train.mindformers={parallel: {parallel_optimizer_config: {parallel_optimizer_threshold: 0}}}"
)
LAYER = 64 * 64 * 2 + 64 * 32 * 2 + 128 * 64 * 3
"""Weights: wq and wo, wk and wv, w1, w2 and w3."""
BIASES, NORMS = 64 + 32 + 32, 64 + 64


def words(folder: Path, *more: str, **changes: Any) -> list[str]:
    """``compile`` of V1's recipe on a launch file of eight devices."""
    launch = read_yaml(find("v1_dp8_tp8_pp2", "launch"))
    launch["hashed"]["train"] |= {"data_parallel": 2, "model_parallel": 2, "recompute": [1, 1]}
    launch["hashed"]["train"] |= changes
    launch["placement"] |= {"hosts": ["node01"], "devices_per_host": 8}
    (folder / "eight.yaml").write_text(yaml_text(launch))
    where = ["--launch", str(folder / "eight.yaml"), "--runs", str(folder / "runs")]
    size = ["train.global_batch_size=4", "train.seq_length=2048", MODEL]
    return ["compile", "v1_sft", *where, *size, *more]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is written about the first rank of each stage."""
    folder = tmp_path_factory.mktemp("compile")
    assert main(words(folder, SHARDED)) == 0
    file = folder / "runs" / "v1_sft" / "compile" / "train" / "compile.json"
    value: dict[str, Any] = json.loads(file.read_text())
    return value


def stage(compiled: dict[str, Any], number: int) -> dict[str, Any]:
    found: dict[str, Any] = compiled["ranks"][number]
    return found


def layouts(compiled: dict[str, Any], number: int) -> dict[str, tuple[Any, ...]]:
    """Name -> (whole, slice, held, ranks of the optimizer group)."""
    keys = ("whole", "slice", "held", "optimizer_group")
    return {
        one["name"]: tuple(one[key] for key in keys)
        for one in stage(compiled, number)["parameters"]
    }


def test_it_says_what_it_is_and_what_it_does_not_show(compiled: dict[str, Any]) -> None:
    assert compiled["what"] == "front-end parallel compile"
    assert "numerics, kernels, device memory" in compiled["not_shown"]
    assert compiled["scaled_down"] == []
    assert [one["rank"] for one in compiled["ranks"]] == [0, 4]


def test_every_stage_has_its_own_layers(compiled: dict[str, Any]) -> None:
    first, last = layouts(compiled, 0), layouts(compiled, 1)
    assert "model.layers.1.attention.wq.weight" in first
    assert "model.layers.2.attention.wq.weight" in last
    assert not set(first) & set(last)
    assert {name for name in first if ".layers." not in name} == {
        "model.tok_embeddings.embedding_weight"
    }
    assert {name for name in last if ".layers." not in name} == {
        "model.norm_out.weight",
        "lm_head.weight",
    }


def test_slices_and_optimizer_shards(compiled: dict[str, Any]) -> None:
    """Two tensor-parallel ranks cut a matrix, two data-parallel ones share what is left."""
    first, last = layouts(compiled, 0), layouts(compiled, 1)
    layer = "model.layers.0."
    assert first[layer + "attention.wq.weight"] == ([64, 64], [32, 64], [16, 64], [0, 2])
    assert first[layer + "attention.wk.weight"] == ([32, 64], [16, 64], [8, 64], [0, 2])
    # What sums over its inputs is cut along them.
    assert first[layer + "attention.wo.weight"] == ([64, 64], [64, 32], [32, 32], [0, 2])
    assert first[layer + "feed_forward.w2.weight"] == ([64, 128], [64, 64], [32, 64], [0, 2])
    assert first[layer + "attention.wq.bias"] == ([64], [32], [32], [])
    assert first[layer + "ffn_norm.weight"] == ([64], [64], [64], [])
    # Rank 4 shares with rank 6: one tensor-parallel place, both data-parallel ones.
    assert last["lm_head.weight"] == ([512, 64], [256, 64], [128, 64], [4, 6])


def test_parameters_of_a_stage(compiled: dict[str, Any]) -> None:
    both = 2 * (LAYER + BIASES + NORMS)
    held = 2 * (LAYER // 4 + BIASES // 2 + NORMS)
    first, last = stage(compiled, 0), stage(compiled, 1)
    assert first["parameters_of_stage"] == both + 512 * 64
    # MindFormers keeps optimizer sharding off the embedding: cut by two, not by four.
    assert first["parameters_held"] == held + 512 * 64 // 2
    assert last["parameters_of_stage"] == both + 512 * 64 + 64
    assert last["parameters_held"] == held + 512 * 64 // 4 + 64


def test_communication_of_a_step(compiled: dict[str, Any]) -> None:
    """Two micro-batches go to the next stage, and come back as gradients."""
    for number in (0, 1):
        by_operation: dict[str, list[dict[str, Any]]] = {}
        for one in stage(compiled, number)["communications"]:
            by_operation.setdefault(one["operation"], []).append(one)
        for name in ("Send", "Receive"):
            assert sum(one["count"] for one in by_operation[name]) == 2
            # With sequence parallelism a rank sends its half of [2048, 64], in bfloat16.
            assert {one["bytes"] for one in by_operation[name]} == {1024 * 64 * 2}
            assert {one["group"] for one in by_operation[name]} == {"pipeline 2"}
        shards = [
            one
            for one in by_operation["ReduceScatter"]
            if one["purpose"] == "gradients to their optimizer shard"
        ]
        # Seven matrices a layer, and the last stage's head: once a step, in float32.
        assert sum(one["count"] for one in shards) == 14 + number
        assert sum(one["bytes"] for one in shards) == 4 * (2 * LAYER + number * 512 * 64) // 2
        assert {one["group"] for one in shards} == {"data 2"}


def test_nothing_is_redistributed_in_our_own_code(compiled: dict[str, Any]) -> None:
    """Without strategies in the loss every rank would gather whole rows of the vocabulary."""
    assert [one for one in stage(compiled, 1)["communications"] if one["in_our_code"]] == []


def test_every_rank_gathers_the_scores_of_all_parts(compiled: dict[str, Any]) -> None:
    """Log-prob, log-sum and entropy per token and part, for each of two micro-batches; two of the
    three have gradients, which come back as sums of what the ranks made of them."""
    part, both = "Float32[1, 2048, 1]", "Float32[2, 2048, 1]"
    scores = [
        (one["operation"], one["group"], one["count"])
        for one in stage(compiled, 1)["communications"]
        if {one["sent"], one["received"]} == {part, both}
    ]
    gather, scatter = ("AllGather", "tensor 2", 2), ("ReduceScatter", "tensor 2", 2)
    assert scores == [gather, gather, gather, scatter, scatter]


def test_no_all_reduce_is_merged(compiled: dict[str, Any]) -> None:
    found = [one for rank in compiled["ranks"] for one in rank["communications"]]
    assert found and [one for one in found if one["merged"]] == []


def test_sums_over_ranks_are_refused_as_mindspore_makes_their_gradients_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The layout that the loss had at first; what was compiled is written all the same."""
    folders = (HELPERS, HELPERS.parent / "tensor_parallel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    monkeypatch.setattr(compile_run, "PROGRAM", "reduced_compile")
    assert main(words(tmp_path, "--ranks", "4")) == 1
    said = capfd.readouterr()
    assert "merged AllReduces 2" in said.out
    assert "the compiled graph has wrong gradients" in said.err
    assert said.err.count("AllReduce of Float32[1, 2048, 1] over tensor 2, 2 per step") == 2
    file = tmp_path / "runs" / "v1_sft" / "compile" / "train" / "compile.json"
    (rank,) = json.loads(file.read_text())["ranks"]
    assert sum(one["merged"] for one in rank["communications"]) == 2


def test_a_strategy_that_cannot_be_fails_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """MindSpore raises that an operator failed; why is in its log only."""
    monkeypatch.setenv("PYTHONPATH", str(HELPERS))
    monkeypatch.setattr(compile_run, "PROGRAM", "broken_compile")
    assert main(words(tmp_path, "--ranks", "4")) == 1
    said = capfd.readouterr().err
    assert "front-end parallel compile, rank 4 of 8 (stage 2 of 2): failed" in said
    assert "Failure:operator ExpandDims init failed" in said
    assert "the strategy is ((3, 1),)" in said


def test_a_layout_of_the_data_that_does_not_fit_fails_with_its_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A column too few in a dataset_strategy written by hand."""
    strategy = "train.mindformers={parallel: {dataset_strategy: [[2, 1], [2, 1], [2, 1]]}}"
    assert main(words(tmp_path, strategy, "--ranks", "0")) == 1
    assert "rank 0 of 8 (stage 1 of 2): failed: " in capfd.readouterr().err
