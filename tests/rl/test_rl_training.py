"""Where the training process of a stage rl is started, and where its servers are."""

from __future__ import annotations

from pathlib import Path

import pytest
from rehearsals import round_config

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.rl import training as module
from pcl_reasoner.rl.training import Training


def context(tmp_path: Path, sampling: list[str]) -> StageContext:
    placement = Placement(hosts=["a", "b", "c"], rollout={"hosts": sampling})  # type: ignore[arg-type]
    return StageContext("rl_1", tmp_path / "quarantined.jsonl", placement)


def training(tmp_path: Path, sampling: list[str]) -> Training:
    inputs = {"policy": tmp_path / "policy"}
    where = context(tmp_path, sampling)
    return Training(round_config(2, 1, 1), inputs, tmp_path, where, lambda first: None)


def test_only_the_hosts_that_do_not_sample_are_given_to_training(tmp_path: Path) -> None:
    found = training(tmp_path, ["b"])
    assert found.context.placement.hosts == ["a", "c"]
    assert found.context.placement.stall_seconds == float("inf")


def test_several_hosts_have_to_be_started_from_here(tmp_path: Path) -> None:
    with (
        pytest.raises(StageError, match="training on 2 hosts .* Give --start ssh"),
        training(tmp_path, ["b"]),
    ):
        pass
    assert not (tmp_path / "mindformers.yaml").exists()


def test_hosts_compare_the_policy_but_no_file_of_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds change while training runs: a spare host that joins later has others."""
    compared = []
    monkeypatch.setattr(module, "run_training", lambda _, folders, *rest: compared.extend(folders))
    one = training(tmp_path, ["b"])
    one._run()
    assert (one.error, compared) == (None, [tmp_path / "policy"])
