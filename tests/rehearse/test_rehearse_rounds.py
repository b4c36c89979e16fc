"""Rounds of a rehearsal by hand, and the accumulating step on ranks against one process.

Without the division of the gradient's norm among data-parallel ranks, the norm of DP 2 is √2 times
too large, and every clipped update is wrong. Without ScatterMax, the largest mismatch of a step in
a pipeline is that of one micro-batch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rehearsals import rehearsed, round_config
from safetensors.numpy import save_file

from pcl_reasoner.cli.main import cli
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.rehearse.compare import HANDED_OVER, LIMITS, Comparison, summary
from pcl_reasoner.rehearse.rounds import row_counts, scale_rounds, weight_errors, write_run
from pcl_reasoner.rehearse.rows import write_rows
from pcl_reasoner.rehearse.weights import write_policy
from pcl_reasoner.rounds.files import read_published

LAYOUTS: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "TP2 sequence": (1, 2, 1, {"sequence_parallel": True}),
    "DP2 TP2": (2, 2, 1, {}),
    "DP2 TP2 both": (2, 2, 1, {"optimizer_shard": True, "sequence_parallel": True}),
    "PP2": (1, 1, 2, {}),
    "DP2 PP2 optimizer": (2, 1, 2, {"optimizer_shard": True}),
    "TP2 PP2": (1, 2, 2, {}),
    "DP2 TP2 PP2": (2, 2, 2, {}),
    "DP2 TP2 PP2 both, recompute": (
        *(2, 2, 2),
        {"optimizer_shard": True, "sequence_parallel": True, "recompute": True},
    ),
    "DP2 TP2 PP2 rows of two": (2, 2, 2, {"rows": 8, "micro_batch_size": 2}),
}


def test_the_stage_keeps_its_flags_and_gets_the_size_of_a_rehearsal() -> None:
    """DP 2 x TP 8 x PP 4 of 8 rows of 32,768 tokens -> DP 2 x TP 2 x PP 2 of 4 rows of 2,048."""
    stage = round_config(
        *(2, 8, 4),
        max_new_tokens=24576,
        max_model_len=32768,
        row_tokens=32768,
        rows=8,
        optimizer_shard=True,
        clip_grad=0.5,
        loss_parameters={"eps_high": 0.3},
        warmup_rounds=4,
    )
    scaled = scale_rounds(stage, None, 8, 3)
    found = scaled.rounds
    assert found is not None
    assert (found.data_parallel, found.model_parallel, found.pipeline_stage) == (2, 2, 2)
    assert (found.rows, found.row_tokens, found.max_model_len) == (4, 2048, 2048)
    assert (found.optimizer_shard, found.clip_grad, found.warmup_rounds) == (True, 0.5, 0)
    assert (found.max_rounds, found.checkpoint_rounds, found.learning_rate) == (3, 1, 1e-4)
    assert found.training.loss_parameters == {"on_policy": 1.0, "eps_high": 0.3}
    one = scaled.one_process()
    assert (one.devices, one.global_batch_size, one.micro_batch_size) == (1, 12, 12)


def test_rounds_have_several_micro_steps_on_ranks_and_one_in_one_process(tmp_path: Path) -> None:
    """4 rows per micro-step: rounds of 3 x 4 - 1, 4, and 2 x 4 - 2 rows; then from the start."""
    scaled = scale_rounds(round_config(2, 1, 2), None, 8, 4)
    assert row_counts(scaled) == [11, 4, 6, 11]
    policy, packed = tmp_path / "policy", tmp_path / "rows"
    write_policy(policy, scaled.shape, 0)
    write_rows(packed, scaled.config, None, 32)
    found = {}
    for name, training in (("ranks", scaled.config), ("one", scaled.one_process())):
        (tmp_path / name).mkdir()
        write_run(scaled, training, packed, policy, tmp_path / name)
        rounds = tmp_path / name / "rounds"
        found[name] = [read_published(rounds, number) for number in range(4)]
        assert json.loads((rounds / "end.json").read_text()) == {"rounds": 4}
    ranks, one = ([one for one in runs if one] for runs in found.values())
    assert [(round.rows, round.micro_steps) for round in ranks] == [
        (11, 3),
        (4, 1),
        (6, 2),
        (11, 3),
    ]
    assert [(round.rows, round.micro_steps) for round in one] == [(11, 1), (4, 1), (6, 1), (11, 1)]
    assert [round.segments for round in ranks] == [round.segments for round in one]
    third = read_arrow_folder(tmp_path / "ranks" / "rounds" / "00002" / "rows")
    whole = read_arrow_folder(packed)
    assert third["input_ids"].to_pylist() == whole["input_ids"].to_pylist()[15:21]
    assert ranks[2].segments == sum(whole["trained_segments"].to_pylist()[15:21])


def test_weights_are_compared_in_updates(tmp_path: Path) -> None:
    """Two of eight numbers differ by 2e-4, with a learning rate of 1e-4: √(2 / 8) x 2 = 1."""
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    other = values.copy()
    other[0, :2] += np.float32(2e-4)
    write = {"one": [values, values, values], "ranks": [values, other, values[:1]]}
    for run, rounds in write.items():
        for number, tensor in enumerate(rounds):
            folder = tmp_path / run / "rounds" / f"{number:05d}" / "weights"
            folder.mkdir(parents=True)
            save_file({"w": tensor}, folder / "model.safetensors")
    errors = weight_errors(tmp_path / "one", tmp_path / "ranks", 1e-4)
    assert errors == [0.0, pytest.approx(1.0, rel=1e-2), float("inf")]
    found = Comparison([0.0] * 3, [0.0] * 3, [0.0] * 3, [], [], errors)
    assert [(name, step) for name, step, _ in found.steps_off()] == [
        (HANDED_OVER, 2),
        (HANDED_OVER, 3),
    ]


def assert_equal(found: Comparison) -> None:
    assert found.missing == found.off() == found.steps_off() == [], dict(summary(found))
    assert len(found.weights) == len(found.loss) == 3


@pytest.mark.slow
def test_rounds_on_ranks_are_those_of_one_process(ranks_can_run: None, tmp_path: Path) -> None:
    """DP 2, sharded optimizer states: gradients, norms, and the weights that are handed over."""
    assert_equal(rehearsed(round_config(2, 1, 1, optimizer_shard=True), tmp_path / "run", 3))


@pytest.mark.slow
def test_rl_as_a_user_rehearses_it(ranks_can_run: None, tmp_path: Path) -> None:
    """DP 2 x TP 2 x PP 2 with the flags of the launch file, on eight processes; two rounds."""
    words = ["am_thinking_v1", "--launch", "atlas_910c_rl", "--stage", "rl_1", "--steps", "2"]
    done = CliRunner().invoke(cli, ["rehearse", *words, "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (
        "DP 2 x TP 2 x PP 2, 8 ranks for the recipe's DP 2 x TP 8 x PP 4, 64 ranks" in done.output
    )
    assert "a step is a round: rounds of 11, 4 rows, in micro-steps of 4" in done.output
    found = json.loads((tmp_path / "am_thinking_v1/rehearsal/rl_1/rehearsal.json").read_text())
    assert found["worst"]["gradient"] < LIMITS["gradient"]
    assert found["worst"][HANDED_OVER] < LIMITS["parameter"]
    assert found["rows_of_rounds"] == [11, 4] and len(found["weights"]) == 2
    assert found["flags"]["optimizer_shard"] and found["flags"]["recompute"]


@pytest.mark.long
@pytest.mark.parametrize("name", LAYOUTS)
def test_rounds_in_every_layout(name: str, ranks_can_run: None, tmp_path: Path) -> None:
    data, tensor, stages, settings = LAYOUTS[name]
    config = round_config(data, tensor, stages, **settings)
    assert_equal(rehearsed(config, tmp_path / "run", 3))
