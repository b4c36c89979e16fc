"""Rehearsals for real: ranks as processes, through msrun and MindFormers' Trainer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rehearsals import LAYOUTS, OLD_SCORES, cluster_config, rehearsed

from pcl_reasoner.cli.main import cli
from pcl_reasoner.losses import VARIANTS
from pcl_reasoner.rehearse.compare import LIMITS, Comparison


@pytest.fixture(scope="module", autouse=True)
def _ranks(ranks_can_run: None) -> None:
    """Ranks need g++ and the wheel that they were checked with."""


def assert_equal(found: Comparison) -> None:
    assert found.missing == found.off() == found.steps_off() == []


@pytest.mark.slow
def test_tensor_parallelism_and_what_the_old_log_probs_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rehearsal passes; with the log-probs whose gradients MindSpore makes wrong, it does not.

    Then loss and figures are still right, as they were when the error was found.
    """
    config = cluster_config(1, 2, 1)
    assert_equal(rehearsed(config, tmp_path / "ours"))
    monkeypatch.setenv("PYTHONPATH", str(OLD_SCORES))
    found = rehearsed(config, tmp_path / "old")
    assert found.worst("gradient") > 0.05
    assert len(found.off()) > 20
    assert found.loss[0] < 1e-6


@pytest.mark.slow
def test_v15_as_a_user_rehearses_it(tmp_path: Path) -> None:
    """DP 2 x TP 2 x PP 2 with the flags of V1.5's launch file, on eight processes."""
    words = ["v15_opg", "--launch", "atlas_910c_16x8", "--steps", "2", "--runs", str(tmp_path)]
    done = CliRunner().invoke(cli, ["rehearse", *words])
    assert done.exit_code == 0, done.output
    assert "rehearsal of v15_opg/train: DP 2 x TP 2 x PP 2, 8 ranks for the recipe's" in done.output
    assert "artificial rows, because the recipe's are not packed" in done.output
    found = json.loads((tmp_path / "v15_opg/rehearsal/train/rehearsal.json").read_text())
    assert found["worst"]["gradient"] < LIMITS["gradient"]
    assert found["missing"] == []
    assert found["flags"]["optimizer_shard"] and found["flags"]["sequence_parallel"]
    assert [step["step"] for step in found["steps"]] == [1, 2]
    names = {one["name"] for one in found["tensors"] if one["kind"] == "parameter"}
    assert {"lm_head.weight", "model.layers.1.attention.wq.bias"} <= names
    assert {one["ranks"] for one in found["tensors"]} == {4}


@pytest.mark.long
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_one_process(name: str, tmp_path: Path) -> None:
    data, tensor, stages, settings = LAYOUTS[name]
    assert_equal(rehearsed(cluster_config(data, tensor, stages, **settings), tmp_path / "run"))


@pytest.mark.long
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_loss_is_one_process(variant: str, tmp_path: Path) -> None:
    loss, parameters = VARIANTS[variant]
    config = cluster_config(2, 2, 1, loss=loss, loss_parameters=parameters)
    assert_equal(rehearsed(config, tmp_path / "run"))


@pytest.mark.long
@pytest.mark.parametrize("launch", ["v1_dp8_tp8_pp2", "one_node_7b"])
def test_v1s_layouts_as_a_user_rehearses_them(launch: str, tmp_path: Path) -> None:
    words = ["v1_sft", "--launch", launch, "--steps", "2", "--runs", str(tmp_path)]
    done = CliRunner().invoke(cli, ["rehearse", *words])
    assert done.exit_code == 0, done.output
