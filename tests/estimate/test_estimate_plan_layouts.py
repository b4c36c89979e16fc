"""Layouts compared, what fits in place of what does not, and the command."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from plan_trainings import SMALL, recipe_training

from pcl_reasoner.budget.plan_files import layout_chart
from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.estimate import layouts
from pcl_reasoner.estimate.chips import read_chip
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.memory_estimate import fullest, memory

CHIP = read_chip("ascend_910c_die", "bfloat16")
SIZE = DataSize(
    segments=100,
    segment_tokens=50,
    rows=50,
    rows_before=100,
    row_tokens=100,
    global_rows=4,
    epochs=1,
    steps=12,
    notes=(),
)


LONG = replace(SMALL, vocabulary=32, row_tokens=1000)
"""Mostly activations: the first stage, with two micro-batches in flight, is the fullest."""


def test_layouts_that_divide() -> None:
    """Eight devices, two key heads, four layers, four rows a step.

    Four and more tensor-parallel ranks do not divide the key heads, eight data-parallel ones the
    rows. DP 2 x TP 1 x PP 4 has two micro-batches for four stages.
    """
    assert set(layouts.possible_layouts(SMALL)) == {(4, 2, 1), (2, 2, 2), (1, 2, 4)}


def test_a_micro_step_without_a_pipeline_has_one_micro_batch() -> None:
    """Four rows on four devices: DP 2 x TP 2 would take them in two micro-batches."""
    job = replace(SMALL, stages=1, stage_layers=(4,), recomputed=(0,))
    rounds = replace(job, by_rounds=True)
    assert {*layouts.possible_layouts(job)} - {*layouts.possible_layouts(rounds)} == {(2, 2, 1)}
    assert {(4, 1, 1), (2, 1, 2)} <= {*layouts.possible_layouts(rounds)}


def test_the_least_that_must_be_recomputed() -> None:
    """As many layers as the limit asks for in each stage by itself, and not one less."""
    alone = [sum(kinds.values()) for kinds in memory(replace(LONG, recomputed=(2, 2)))]
    free = [sum(kinds.values()) for kinds in memory(LONG)]
    assert alone[0] < free[0]
    tight = replace(LONG, limit_bytes=free[0] - 1)
    found = layouts.least_recompute(tight, CHIP)
    assert found.recomputed == (1, 0) and found.swap_attention is False
    assert fullest(found)[1] <= tight.limit_bytes
    assert layouts.least_recompute(replace(LONG, limit_bytes=1), CHIP).recomputed == (2, 2)


def test_the_nearest_that_fits() -> None:
    assert layouts.nearest_fit(LONG, CHIP, SIZE) is None
    most = fullest(LONG)[1]
    near = layouts.nearest_fit(replace(LONG, limit_bytes=most - 1), CHIP, SIZE)
    assert near is not None and near.title == "recompute [1, 0]" and near.bytes < most
    # Moments go to the host only where recomputing everything is not enough.
    everything = fullest(replace(LONG, recomputed=(2, 2)))[1]
    swapped = layouts.nearest_fit(replace(LONG, limit_bytes=everything - 1), CHIP, SIZE)
    assert swapped is not None and swapped.title.endswith(", swap_optimizer")
    assert layouts.nearest_fit(replace(LONG, limit_bytes=1), CHIP, SIZE) is None


def test_no_more_than_the_chip_has() -> None:
    assert layouts.memory_limit(SMALL, CHIP) == SMALL.limit_bytes
    assert layouts.memory_limit(SMALL, replace(CHIP, memory_bytes=5)) == 5


def test_comparing_keeps_the_batch_and_puts_what_fits_first() -> None:
    found = layouts.compare(SMALL, CHIP, SIZE)
    assert {one.job.global_rows for one in found} == {4}
    assert all(one.fits for one in found)
    assert [one.hours for one in found] == sorted(one.hours for one in found)
    some = sorted(one.bytes for one in found)[0]
    tight = layouts.compare(replace(SMALL, limit_bytes=some), CHIP, SIZE)
    fits = [one.fits for one in tight]
    assert fits == sorted(fits, reverse=True)


def test_changes_save_hours_and_fit(tmp_path: Path) -> None:
    """Of V1.5: packing is worth most; what is said of it is what estimating it gives."""
    job = recipe_training("v15_opg", "atlas_910c_16x8", tmp_path)
    size = replace(SIZE, segments=1000, segment_tokens=20_480, rows=1000, rows_before=1000)
    size = replace(size, row_tokens=51_200, global_rows=128, steps=8)
    found = layouts.changes(job, CHIP, size)
    now = layouts.choice("now", job, CHIP, size)
    assert found[0].title.startswith("pack.one_segment_per_row false")
    assert found[0].steps == round(8 * 401 / 1000), "401 rows of 51 200 x 0.9999 hold them"
    assert all(one.fits and one.hours < now.hours for one in found)
    fewer = next(one for one in found if one.title.startswith("recompute"))
    assert fewer.title.endswith(", swap false") and sum(fewer.job.recomputed) < 64
    # Hours fall by less compute and fewer passes; the same number of steps.
    assert fewer.steps == now.steps and fewer.step["compute"] < now.step["compute"]


def test_a_change_that_does_not_fit_is_not_one() -> None:
    swapped = replace(LONG, swap_optimizer=True)
    titles = [one.title for one in layouts.changes(swapped, CHIP, SIZE)]
    assert "swap_optimizer off" in titles
    tight = replace(swapped, limit_bytes=fullest(swapped)[1])
    titles = [one.title for one in layouts.changes(tight, CHIP, SIZE)]
    assert "swap_optimizer off" not in titles


def test_the_chart_is_whole_and_pale_where_it_does_not_fit() -> None:
    good = layouts.choice("DP 2 & more", SMALL, CHIP, SIZE)
    bad = layouts.choice("bad", replace(SMALL, limit_bytes=1), CHIP, SIZE)
    text = layout_chart([good, bad])
    tree = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    pale = [one for one in tree.iter(f"{space}rect") if "over" in one.get("class", "").split()]
    assert len(pale) == 4
    words = [one.text for one in tree.iter(f"{space}text")]
    assert "DP 2 & more" in words and "bad" in words
    widths = [float(one.get("width", 0)) for one in tree.iter(f"{space}rect")][4:8]
    share = good.step["compute"] / good.seconds
    assert widths[0] / sum(widths) == pytest.approx(share, abs=0.02)


def run(*words: str, runs: Path) -> str:
    answer = CliRunner().invoke(cli, ["plan", *words, "--runs", str(runs)], catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.output


def test_the_command_on_v15(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """116 h is 3.2 % MFU: by hand, in the range that the published figures give."""
    said = run("v15_opg", "--launch", "atlas_910c_16x8", "--measured-hours", "116", runs=tmp_path)
    assert "fullest: stage 1 of 4, 16.4 of 58.0 GiB" in said
    assert "27,174 segments of 20,480 tokens = 556,523,520 tokens per epoch" in said
    # 27 174 rows: 5 x 27 174 = 1 061 x 128 + 62. DP 4 leaves a rank 32 rows of a step.
    assert "212.3 steps per epoch, 5 epochs, max_steps 1,062: 1,061 steps, 62 rows left" in said
    assert "128 rows per step: 32 on each data-parallel rank, in 32 micro-batches of 1" in said
    assert "swap has no effect" in said
    assert re.search(r"116 h measured: 394 s per step, MFU 3\.2%", said)
    value: dict[str, Any] = json.loads(
        (tmp_path / "v15_opg" / "plan" / "train" / "plan.json").read_text()
    )
    # 31.2e9 weights in products, 20 480 tokens, causal attention; 128 rows on 128 x 376e12.
    products = 2 * (64 * 487_587_840 + 778_567_680) * 20_480
    attention = 64 * 2 * 5120 * 20_480**2
    mfu = 3 * (products + attention) * 128 / (128 * 376e12 * 116 * 3600 / 1061)
    assert mfu == pytest.approx(0.032, abs=0.001)
    assert value["now"]["layout"] == {"data": 4, "tensor": 8, "stages": 4}
    assert value["memory"]["fits"] and value["now"]["steps"] == 1061
    assert len(value["changes"]) == 3 and len(value["layouts"]) > 10
    assert (tmp_path / "v15_opg" / "plan" / "train" / "layouts.svg").is_file()


def test_the_command_says_what_does_not_fit(tmp_path: Path) -> None:
    said = run(
        "v1_sft",
        "train.max_device_memory=40GB",
        "--launch",
        "v1_dp8_tp8_pp2",
        runs=tmp_path,
    )
    assert "DOES NOT FIT, 6.6 GiB over; the nearest that fits: recompute [" in said
    assert "666,000 segments of 8,158 tokens" in said
    assert "165,835 rows, 41,437 (20.0%) fewer than 207,272" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["v1_sft"], "device is CPU with launch file laptop.yaml"),
        (["v1_sft", "--launch", "v1_dp8_tp8_pp2", "--chip", "tpu"], "chip tpu: no such chip"),
        (
            ["v1_sft", "train.pipeline_stage=4", "--launch", "v1_dp8_tp8_pp2"],
            "= 256 ranks for 16 hosts x 8 devices = 128",
        ),
    ],
)
def test_bad_input_is_one_clear_error(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        run(*words, runs=tmp_path / "runs")
    assert not list(tmp_path.rglob("plan.json"))
