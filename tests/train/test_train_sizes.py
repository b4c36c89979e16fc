"""Sizes that users work out by hand elsewhere, worked out by hand here."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from train_helpers import train_config

from pcl_reasoner.cli.main import cli
from pcl_reasoner.pack.order import data_order
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.train.sizes import derived_sizes, size_lines

V1 = {
    "device": "Ascend",
    "precision": "bfloat16",
    "compressed_mask": True,
    "global_batch_size": 128,
    "data_parallel": 8,
    "model_parallel": 8,
    "pipeline_stage": 2,
    "epochs": 4,
    "warmup_ratio": 0.05,
}


def test_v1s_published_rows() -> None:
    """25 909 rows on each of 8 ranks, 4 epochs; upstream's own YAML has a mock size of 103 636."""
    sizes = derived_sizes(train_config(**V1), 25_909 * 8)
    assert sizes.rows == 207_272
    assert (sizes.rows_per_rank, sizes.micro_batches) == (16, 16)
    # 207 272 / 128 = 1 619.3125; 829 088 rows in all are 6 477 x 128 and 32 over.
    assert sizes.steps_per_epoch == 1_619.3125
    assert (sizes.steps, sizes.left_over) == (6_477, 32)
    # 0.05 x 6 477 = 323.85, cut off.
    assert sizes.warmup_steps == 323
    assert sizes.mock_rows == 103_636
    assert sizes.dataset_strategy[0] == [8, 1]
    assert {tuple(one) for one in sizes.dataset_strategy} == {(8, 1)}


def test_a_limit_of_steps_leaves_rows_over() -> None:
    """10 rows, 3 epochs, 4 a step: 7 steps and 2 rows; of 5 steps 10 rows are left."""
    few = {"global_batch_size": 4, "micro_batch_size": 4, "epochs": 3, "warmup_ratio": 0.4}
    whole = derived_sizes(train_config(**few), 10)
    assert (whole.steps, whole.left_over, whole.warmup_steps) == (7, 2, 2)
    cut = derived_sizes(train_config(**few, max_steps=5), 10)
    assert (cut.steps, cut.left_over, cut.warmup_steps, cut.mock_rows) == (5, 10, 2, 30)
    assert cut.steps_per_epoch == 2.5
    # As the loader has it.
    for sizes, limit in ((whole, None), (cut, 5)):
        order = data_order(10, 3, 4, 0, limit)
        assert (order.steps, order.left_over) == (sizes.steps, sizes.left_over)


def test_a_dense_mask_has_two_more_axes() -> None:
    config = train_config(data_parallel=2, global_batch_size=4, micro_batch_size=2)
    strategy = derived_sizes(config, 8).dataset_strategy
    assert strategy[-1] == [2, 1, 1, 1] and strategy[0] == [2, 1]
    last = size_lines(derived_sizes(config, 8), config)[-1]
    assert last.endswith(f"{len(strategy) - 1} x [2, 1], 1 x [2, 1, 1, 1]")


def dry_run(runs: Path, *words: str) -> str:
    answer = CliRunner().invoke(cli, ["run", *words, "--dry-run", "--runs", str(runs)])
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_a_dry_run_says_them_by_the_rows_that_are_packed(tmp_path: Path) -> None:
    words = ("v1_sft", "--launch", "v1_dp8_tp8_pp2")
    before = dry_run(tmp_path, *words)
    assert "sizes of v1_sft/train, from 165,835 rows, an estimate: nothing is packed yet:" in before
    planned = make_plan(load_recipe(words[0], words[2]), tmp_path, until="train").stages[-1]
    packs = planned.inputs["packs"].path
    packs.mkdir(parents=True)
    (packs / "accounting.json").write_text(json.dumps({"rows": 207_272}))
    lines = dry_run(tmp_path, *words).partition("sizes of v1_sft/train, ")[2].splitlines()
    assert lines[:5] == [
        "from 207,272 packed rows:",
        "  128 rows per step: 16 on each data-parallel rank, in 16 micro-batches of 1",
        "  1,619.3 steps per epoch, 4 epochs: 6,477 steps, 32 rows left over",
        "  323 warm-up steps; a mock size of 103,636 rows per rank",
        "  dataset_strategy, per column: 12 x [8, 1]",
    ]
    written = (tmp_path / "v1_sft" / "dry_run" / "mindformers.train.yaml").read_text()
    assert "size: 103636" in written


def test_a_laptop_is_not_told_the_papers_sizes(tmp_path: Path) -> None:
    assert "sizes of v1_sft/train: known when its rows are packed\n" in dry_run(tmp_path, "v1_sft")
