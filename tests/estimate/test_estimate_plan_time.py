"""Hours: passes against the compile's, seconds by hand, rows from published counts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from plan_trainings import SMALL

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.estimate import time_estimate as estimate
from pcl_reasoner.estimate.chips import Chip, read_chip
from pcl_reasoner.estimate.data_size import DataSize, data_size, exact_fill, published_counts
from pcl_reasoner.estimate.time_estimate import Rows
from pcl_reasoner.pack.config import PackConfig
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.train.config import TrainConfig

CHIP = Chip("round", "", 2e9, 1e9, 5e8, 0, 1e8, 1e6, 1e5, 1e7, 4, "", {"matrix": 0.5})
"""A chip of round rates: 1e9 operations, 1e8, 1e6, 1e5 and 1e7 bytes a second."""
FULL = Rows(segment_tokens=50, filled=1.0)
LAYER = 64 * 64 * 2 + 64 * 32 * 2 + 128 * 64 * 3


def test_passes_are_those_of_the_compile() -> None:
    """As `pclr-ms compile` counted in the launch files' layouts, two layers a stage, recomputed.

    V1's last stage, 16 micro-batches: 144 + 64 AllGathers and 96 + 80 ReduceScatters, of which
    16 + 16 are float32. Its first: 320 and 32 AllReduces in float32. V1.5's last stage, 32
    micro-batches: 704 in float16 and 64 in float32. A recomputed layer makes eleven.
    """
    job = replace(SMALL, recomputed=(2, 2))
    assert 16 * estimate.tensor_passes(job, 1) == 144 + 64 + 96 + 80 + (16 + 16)
    assert 16 * estimate.tensor_passes(job, 0) == 64 * 5 + 32 + 32 * 2 * 2
    assert 32 * estimate.tensor_passes(job, 1) == 704 + 64 * 2
    assert estimate.tensor_passes(SMALL, 1) == 2 * 8 + 4


def test_a_stages_seconds_by_hand() -> None:
    """100 tokens of two segments, two ranks share the work."""
    matrix = 2 * LAYER * 100 / 2 / 1e9
    attention = 2 * 64 * 100 * 50 / 2 / 5e8
    compute, communication = estimate.stage_seconds(SMALL, CHIP, FULL, 0)
    assert compute == pytest.approx(2 * (3 * matrix + 3.5 * attention))
    # 100 x 64 numbers of two bytes, half of them sent, 1e6 a second, 16 passes and 8 more.
    assert communication == pytest.approx(24 * 12_800 / 2 / 1e6)
    again, _ = estimate.stage_seconds(replace(SMALL, recomputed=(1, 0)), CHIP, FULL, 0)
    assert again - compute == pytest.approx(matrix + attention)
    last, _ = estimate.stage_seconds(SMALL, CHIP, FULL, 1)
    assert last - compute == pytest.approx(8 * 512 * 64 * 100 / 2 / 1e9)


def test_a_step_is_its_slowest_stage_and_the_bubble() -> None:
    step = estimate.step_time(SMALL, CHIP, FULL)
    both = [estimate.stage_seconds(SMALL, CHIP, FULL, stage) for stage in (0, 1)]
    compute, communication = max(both, key=sum)
    assert step["compute"] == pytest.approx(2 * compute)
    assert step["tensor communication"] == pytest.approx(2 * communication)
    assert step["pipeline bubble"] == pytest.approx(compute + communication)
    # The stream of one micro-batch, 6 400 bytes on a rank, there and back, twice.
    assert step["pipeline sends"] == pytest.approx(2 * 2 * 6400 / 1e5)


def test_optimizer_and_swap_by_hand() -> None:
    """The first stage: more is held there, as its embedding is not spread."""
    spread = 2 * LAYER // 2
    whole = 2 * (128 // 2 + 128) + 512 * 64 // 2
    step = estimate.step_time(replace(SMALL, swap_optimizer=True), CHIP, FULL)
    held = spread // 2 + whole
    # Two data-parallel ranks: half of it is sent; all four ranks of a stage are in one node.
    sent = (spread * (4 + 2) + whole * 8) / 2 / 1e6
    assert step["optimizer"] == pytest.approx(28 * held / 1e8 + sent)
    assert step["swap"] == pytest.approx(2 * 8 * held / 1e7)
    apart = estimate.step_time(replace(SMALL), replace(CHIP, devices_per_node=2), FULL)
    assert apart["optimizer"] == pytest.approx(28 * held / 1e8 + sent * 10)


def test_a_micro_step_adds_its_gradient_and_the_update_comes_once() -> None:
    """Three passes in place of AdamW's seven; moments are moved in the update alone."""
    held = 2 * LAYER // 4 + 2 * (128 // 2 + 128) + 512 * 64 // 2
    job = replace(SMALL, swap_optimizer=True)
    step = estimate.step_time(job, CHIP, FULL)
    micro_step = estimate.step_time(replace(job, by_rounds=True), CHIP, FULL)
    assert step["optimizer"] - micro_step["optimizer"] == pytest.approx((28 - 12) * held / 1e8)
    assert (step["swap"], micro_step["swap"]) == (pytest.approx(16 * held / 1e7), 0)
    assert {
        name: seconds for name, seconds in step.items() if name not in ("optimizer", "swap")
    } == {
        name: seconds for name, seconds in micro_step.items() if name not in ("optimizer", "swap")
    }
    update = estimate.update_seconds(replace(job, by_rounds=True), CHIP)
    assert update == pytest.approx(28 * held / 1e8 + 16 * held / 1e7)


def test_without_ranks_to_talk_to_nothing_is_sent() -> None:
    alone = replace(
        SMALL, data=1, tensor=1, stages=1, stage_layers=(4,), recomputed=(0,), micro_batches=1
    )
    step = estimate.step_time(alone, CHIP, FULL)
    assert step["tensor communication"] == step["pipeline bubble"] == step["pipeline sends"] == 0
    assert estimate.step_time(alone, replace(CHIP, network=1.0, node=1.0), FULL) == step


def test_mfu_counts_no_padding_and_no_recomputation() -> None:
    numbers = 4 * LAYER + 512 * 64
    a_row = 3 * (2 * numbers * 100 + 4 * 2 * 64 * 100 * 50)
    assert estimate.model_operations(SMALL, FULL) == pytest.approx(a_row)
    assert estimate.model_operations(SMALL, Rows(50, 0.5)) == pytest.approx(a_row / 2)
    # Four rows a step on eight devices of 2e9.
    assert estimate.mfu(SMALL, CHIP, FULL, 0.1) == pytest.approx(4 * a_row / (8 * 2e9 * 0.1))
    again = replace(SMALL, recomputed=(2, 2))
    assert estimate.mfu(again, CHIP, FULL, 0.1) == estimate.mfu(SMALL, CHIP, FULL, 0.1)


def test_the_share_that_explains_a_measured_step() -> None:
    """The model's own seconds give the model's own share back; impossible ones give none."""
    seconds = sum(estimate.step_time(SMALL, CHIP, FULL).values())
    assert estimate.share_for(SMALL, CHIP, FULL, seconds) == pytest.approx(0.5, rel=1e-6)
    assert estimate.share_for(SMALL, CHIP, FULL, 2 * seconds) < 0.5  # type: ignore[operator]
    assert estimate.share_for(SMALL, CHIP, FULL, 1e-6) is None


def test_published_counts() -> None:
    assert published_counts(load_recipe("v1_sft", "v1_dp8_tp8_pp2").published) == {
        "convert": 666_000,
        "pack": 207_272,
    }
    found = published_counts(load_recipe("v15_opg", "atlas_910c_16x8").published)
    assert found["select"] == 27_174 and found["grade"] == 22_990 + 25_522
    assert found["lengths"] == 34_000 and list(found)[-1] == "select"
    odd = {"funnel": [{"stage": "pack", "label": "", "count": "unknown"}]}
    assert published_counts(odd) == published_counts({}) == {}


TRAIN = TrainConfig.model_construct(
    global_batch_size=10, epochs=3, max_steps=None, seq_length=100, warmup_ratio=0.0
)


def sized(published: Any, train: TrainConfig, alone: bool, *numbers: float | None) -> DataSize:
    """The size for a recipe of a pack stage, with one segment per row or several, and training."""
    configs = (PackConfig.model_construct(one_segment_per_row=alone), train)
    pack, spec = (SimpleNamespace(config=config) for config in configs)
    recipe = SimpleNamespace(published=published, stages={"pack": pack, "train": spec})
    planned: Any = SimpleNamespace(recipe=recipe, spec=spec)
    return data_size(planned, *numbers)  # type: ignore[arg-type]


def test_rows_and_steps_by_hand() -> None:
    """80 published rows of 100 tokens, four fifths full, are 6 400 tokens of 100 segments."""
    funnel = [
        {"stage": "convert", "label": "", "count": "100"},
        {"stage": "pack", "label": "", "count": "40 x 2"},
    ]
    size = sized({"funnel": funnel}, TRAIN, False)
    assert (size.segments, size.segment_tokens, size.tokens) == (100, 64.0, 6400)
    # 64 rows would have to be full to the last token: 99.99 % of 65 is enough.
    assert (size.rows, size.rows_before) == (65, 80)
    assert size.steps == 65 * 3 // 10
    assert size.as_rows() == Rows(64.0, 6400 / 6500)
    short = sized({"funnel": funnel}, TRAIN.model_copy(update={"max_steps": 4}), False)
    assert short.steps == 4


def test_one_a_row_and_a_persons_own_numbers() -> None:
    size = sized({}, TRAIN, True, 50, 20)
    assert (size.rows, size.rows_before, size.as_rows()) == (50, 50, Rows(20, 0.2))
    assert exact_fill(size.tokens, size.row_tokens) == 11
    assumed = sized({}, TRAIN, True, 50)
    assert assumed.segment_tokens == 40 and "ASSUMED" in assumed.notes[0]


@pytest.mark.parametrize(
    ("segments", "tokens", "said"),
    [(None, 20, "no number of responses"), (50, 101, "a row, which has 100 tokens")],
)
def test_numbers_that_cannot_be(segments: int | None, tokens: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        sized({}, TRAIN, False, segments, tokens)


def test_chips_have_their_units() -> None:
    chip = read_chip("ascend_910c_die")
    assert chip.peak == 376e12 and chip.memory_bytes == 64 * 2**30
    assert read_chip("ascend_910c_die", "bfloat16").peak == 353.9e12
    assert chip.matrix == pytest.approx(0.6 * 376e12)
    assert chip.node == pytest.approx(0.7 * 196e9) and chip.network == pytest.approx(0.7 * 25e9)
    assert "arXiv 2506.12708" in chip.source
    with pytest.raises(InputError, match="Known: ascend_910c_die, ascend_910b"):
        read_chip("ascend_910d")
