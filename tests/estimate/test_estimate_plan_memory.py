"""Memory of a device: parameters against the compile's slices, activations against PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan_trainings import SMALL, recipe_training

from pcl_reasoner.estimate import memory_estimate as estimate
from pcl_reasoner.estimate.training_size import (
    GIB,
    Training,
    recomputed_layers,
    selected_tensors,
)

QWEN2_5_32B = 32_763_876_352


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Training:
    return recipe_training("v1_sft", "v1_dp8_tp8_pp2", tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def v15(tmp_path_factory: pytest.TempPathFactory) -> Training:
    return recipe_training("v15_opg", "atlas_910c_16x8", tmp_path_factory.mktemp("runs"))


def held(job: Training) -> list[int]:
    return [estimate.parameters_held(job, stage) for stage in range(job.stages)]


def test_what_ranks_hold_is_what_the_compile_showed(v1: Training, v15: Training) -> None:
    """The last column of the compile's table in docs/benchmarks.md, compiled at full size."""
    assert held(v1) == [341_471_232, 256_320_512]
    assert held(v15) == [341_293_056, 243_972_096, 243_972_096, 268_307_456]


def test_what_ranks_hold_in_a_round_is_what_the_compile_showed(tmp_path: Path) -> None:
    """Ranks 0, 16, 32 and 48 of DP 2 x TP 8 x PP 4, compiled at full size."""
    job = recipe_training("am_thinking_v1", "atlas_910c_rl", tmp_path, stage="rl_1")
    assert held(job) == [585_086_976, 487_766_016, 487_766_016, 536_431_616]


def test_stages_come_to_the_whole_model(v1: Training, v15: Training) -> None:
    for job in (v1, v15):
        alone = replace(job, data=1, tensor=1)
        assert sum(held(alone)) == QWEN2_5_32B


def test_a_small_layout_as_it_compiles() -> None:
    """The numbers of tests/precompile/test_precompile_compile.py, which compiles this model."""
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 128 * 64 * 3
    layers = 2 * (layer // 4 + (64 + 32 + 32) // 2 + (64 + 64))
    assert held(SMALL) == [layers + 512 * 64 // 2, layers + 512 * 64 // 4 + 64]


def test_small_matrices_and_odd_slices_are_not_spread() -> None:
    """Compiled with a threshold of 100 KB, stage 2 held 45 504: lm_head alone, 128 KB, is spread.

    It is the whole matrix that is compared: lm_head's slice has 64 KB.
    """
    assert held(replace(SMALL, shard_threshold=100 * 1024))[1] == 45_504
    whole = sum(held(replace(SMALL, optimizer_shard=False)))
    assert sum(held(replace(SMALL, shard_threshold=131_073))) == whole
    assert sum(held(replace(SMALL, data=3))) == whole


def test_which_rows_data_parallel_ranks_share() -> None:
    """64 ranks: a slice has 64 rows if it is cut along its inputs, or is 128 wide; others fewer."""
    parameters = estimate.stage_parameters(SMALL, 1)
    sharded = {one.name for one in parameters if one.is_sharded(replace(SMALL, data=64))}
    assert sharded == {"wo", "w1", "w2", "w3", "lm_head"}


def test_tied_weights_are_in_the_first_and_the_last_stage() -> None:
    tied = replace(SMALL, tied=True)
    names = [[one.name for one in estimate.stage_parameters(tied, stage)] for stage in (0, 1)]
    assert "embedding" in names[0] and "embedding" in names[1]
    assert "lm_head" not in names[1]
    alone = replace(tied, stages=1, stage_layers=(4,), recomputed=(0,), data=1, tensor=1)
    assert sum(one.name == "embedding" for one in estimate.stage_parameters(alone, 0)) == 1


def test_weights_gradients_and_moments(v1: Training, v15: Training) -> None:
    kinds = estimate.stage_memory(v1, 1)
    assert kinds["weights"] == 4 * 256_320_512
    assert kinds["moments"] == 8 * 256_320_512
    # 16 381 940 736 parameters of the stage, less norms and biases that each rank has whole.
    norms, biases = 65 * 5120, 32 * 7168
    slices = (16_381_940_736 - norms - biases) // 8 + norms + biases // 8
    spread = (16_381_940_736 - norms - biases) // 8
    assert kinds["gradients"] == 4 * slices + 4 * spread // 8
    assert kinds["weights in the compute type"] == 2 * spread
    sharded = estimate.stage_memory(replace(v1, gradient_shard=True), 1)
    assert sharded["gradients"] == 4 * 256_320_512
    assert estimate.stage_memory(v15, 0)["moments"] == 0, "in the host's memory"
    assert estimate.moments_bytes(v15, 0) == 8 * 341_293_056


def test_a_round_keeps_one_more_copy_of_the_gradients() -> None:
    """4 bytes per number that a rank stores, so sharded ones count once over all ranks."""
    for job in (SMALL, replace(SMALL, optimizer_shard=False)):
        for stage in (0, 1):
            step = estimate.stage_memory(job, stage)
            rounds = estimate.stage_memory(replace(job, by_rounds=True), stage)
            assert step[estimate.ROUND_GRADIENTS] == 0
            assert rounds[estimate.ROUND_GRADIENTS] == 4 * estimate.parameters_held(job, stage)
            assert rounds | {estimate.ROUND_GRADIENTS: 0} == step


def test_a_layers_activations_by_hand() -> None:
    """100 tokens, hidden 64, keys 32, width 128, two bytes, cut over two ranks."""
    found = estimate.layer_activations(SMALL)
    stream = 100 * 64 * 2 // 2
    assert found == {
        "layer's input": stream,
        "attention norm": 4 * 50,
        "input of queries, keys, values": 100 * 64 * 2,  # gathered from both ranks
        "queries, keys, values": 100 * (64 + 32 + 32) * 2 // 2,
        "attention's output": stream,
        "attention's statistics": 100 * 4 * 16 * 4 // 2,
        "feed-forward norm's input": stream,
        "feed-forward norm": 4 * 50,
        "input of gate and up": 100 * 64 * 2,
        **dict.fromkeys(("gate", "gate, activated", "up", "product"), 100 * 128 * 2 // 2),
    }
    uncut = estimate.layer_activations(replace(SMALL, sequence_parallel=False))
    assert uncut["layer's input"] == 2 * stream and uncut["attention norm"] == 400


def test_what_stays_of_kept_and_recomputed_layers() -> None:
    """Stage 1 of 2 has two micro-batches in flight, stage 2 one."""
    whole = sum(estimate.layer_activations(SMALL).values())
    job = replace(SMALL, recomputed=(1, 2), selected=frozenset({"product"}))
    first, last = estimate.memory(job)
    assert first["inputs of recomputed layers"] == 2 * 1 * 6400
    assert first["activations of kept layers"] == 2 * 1 * (whole - 12_800)
    assert first["one recomputed layer"] == last["one recomputed layer"] == whole
    assert last["inputs of recomputed layers"] == 1 * 2 * 6400
    assert last["activations of kept layers"] == 0
    first, _ = estimate.memory(replace(job, micro_batches=1))
    assert first["inputs of recomputed layers"] == 6400


def test_swapped_outputs_are_not_on_the_device() -> None:
    swapped = replace(SMALL, swap_attention=True)
    assert estimate.kept_per_layer(SMALL) - estimate.kept_per_layer(swapped) == 6400


def test_logits_of_the_last_stage_only() -> None:
    """All 100 tokens are one chunk of 256 words: three float32 each, beyond the weights' own."""
    first, last = estimate.memory(SMALL)
    assert first["logits"] == first["final norm"] == 0
    assert last["logits"] == 3 * 4 * 100 * 256
    assert last["final norm"] == 100 * 64 * 2 // 2 + 100 * 64 * (4 + 2)
    chunked = estimate.logits_bytes(replace(SMALL, chunk_tokens=50))
    assert chunked < last["logits"]


def test_the_published_layouts_fit_their_58_gib(v1: Training, v15: Training) -> None:
    assert v1.limit_bytes == v15.limit_bytes == 58 * GIB
    stage, size = estimate.fullest(v1)
    assert stage == 0 and 40 * GIB < size < 58 * GIB
    assert estimate.fullest(v15)[1] < 58 * GIB


def test_recompute_in_all_its_forms() -> None:
    layers = (3, 3)
    assert recomputed_layers(True, layers, swap=True) == (3, 3)
    assert recomputed_layers(False, layers, swap=False) == (0, 0)
    assert recomputed_layers(2, layers, swap=False) == (2, 2)
    assert recomputed_layers([1, 9], layers, swap=False) == (1, 3)
    # With swapping MindFormers takes them for the numbers of layers.
    assert recomputed_layers([0, 2, 3], layers, swap=True) == (2, 1)


def test_patterns_of_select_recompute(v1: Training) -> None:
    assert selected_tensors(True) == {"product", "gate, activated"}
    assert selected_tensors([r"feed_forward\.w1\.activation\.silu"]) == {"gate, activated"}
    # V1's pattern for the activation names an operator that MindFormers 1.8.0 does not have.
    assert v1.selected == {"product"}


def saved_bytes(job: Training, layers: int, dtype: Any) -> int:
    """Bytes of all storages that PyTorch keeps for the backward pass; parameters not counted."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    # SDPA: its CPU kernel is a flash attention, which keeps no scores, as Ascend's does. Without
    # a mask (its own causal one) keys are not repeated either. Eager would keep all scores.
    config = Qwen2Config(
        num_hidden_layers=layers,
        hidden_size=job.hidden,
        num_attention_heads=job.heads,
        num_key_value_heads=job.key_heads,
        intermediate_size=job.feed_forward,
        vocab_size=job.vocabulary,
        attn_implementation="sdpa",
        use_cache=False,
    )
    model = Qwen2ForCausalLM(config).to(dtype).train()
    parameters = {one.untyped_storage().data_ptr() for one in model.parameters()}
    seen: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        seen[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no address comes twice
        return tensor

    ids = torch.arange(job.micro_tokens).reshape(1, -1) % job.vocabulary
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=ids, labels=ids, attention_mask={"full_attention": None})
    return sum(
        tensor.untyped_storage().nbytes()
        for address, tensor in seen.items()
        if address not in parameters
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_what_pytorch_saves(dtype: str, tmp_path: Path) -> None:
    """One layer more keeps so much more; by PyTorch's own operators, in one process.

    Norms of several operators, and one number a head and token, are what PyTorch has for Ascend's.
    """
    import torch

    job = replace(
        SMALL,
        hidden=160,
        heads=10,
        key_heads=2,
        feed_forward=864,
        row_tokens=256,
        data=1,
        tensor=1,
        compute_bytes=4 if dtype == "float32" else 2,
        sequence_parallel=False,
    )
    kind = getattr(torch, dtype)
    two, three = (saved_bytes(job, layers, kind) for layers in (2, 3))
    counted = estimate.layer_activations(job, fused_norm=False, statistics=1)
    assert sum(counted.values()) == pytest.approx(three - two, rel=0.01)
    # All of it: layers, final norm and its output, log-probs of the loss, rotary tables.
    norm = counted["layer's input"] + counted["attention norm"]
    head = 256 * (160 * job.compute_bytes + 512 * 4)
    assert 2 * sum(counted.values()) + norm + head == pytest.approx(two, rel=0.05)
