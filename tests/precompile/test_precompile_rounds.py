"""The accumulating step of a stage rl, compiled for 2 data x 2 tensor x 2 pipeline ranks."""

from __future__ import annotations

import json
import platform
from typing import Any

import pytest

from pcl_reasoner.cli.main import main
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.yaml_file import read_yaml

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="steps into the x86-64 wheel"),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What is written about the first rank of each stage, two narrow layers each."""
    folder = tmp_path_factory.mktemp("compile")
    launch = read_yaml(find("atlas_910c_rl", "launch"))
    launch["hashed"]["rl"] |= {"model_parallel": 2, "pipeline_stage": 2, "rows": 4}
    hosts = {"hosts": ["node01", "node02"], "rollout": {"hosts": ["node02"]}}
    launch["hashed"]["train"] |= {"data_parallel": 4, "model_parallel": 2, "pipeline_stage": 2}
    launch["placement"] |= hosts
    (folder / "own.yaml").write_text(yaml_text(launch))
    words = ["compile", "am_thinking_v1", "--launch", str(folder / "own.yaml"), "--stage", "rl_1"]
    assert main([*words, "--scale", "small", "--runs", str(folder / "runs")]) == 0
    file = folder / "runs" / "am_thinking_v1" / "compile" / "rl_1" / "compile.json"
    found: list[dict[str, Any]] = json.loads(file.read_text())["ranks"]
    return found


def communications(compiled: dict[str, Any], purpose: str) -> list[dict[str, Any]]:
    return [one for one in compiled["communications"] if one["purpose"] == purpose]


def test_no_gradient_is_wrong_and_nothing_of_ours_is_redistributed(
    compiled: list[dict[str, Any]],
) -> None:
    assert [one["rank"] for one in compiled] == [0, 4]
    everything = [one for rank in compiled for one in rank["communications"]]
    assert [one for one in everything if one["merged"] or one["in_our_code"]] == []


def test_the_norm_is_that_of_all_ranks(compiled: list[dict[str, Any]]) -> None:
    """The sums of squares are added over the ranks of a stage, then over the stages, once each."""
    for rank, stage in zip(compiled, ([0, 1, 2, 3], [4, 5, 6, 7]), strict=True):
        found = communications(rank, "gradient norm")
        assert [(one["operation"], one["count"]) for one in found] == [("AllReduce", 1)] * 2
        groups = sorted((sorted(one["ranks"]) for one in found), key=len)
        assert groups == [[0, 4], stage]


def test_every_micro_step_shares_its_gradients_out(compiled: list[dict[str, Any]]) -> None:
    """Each matrix of 2 layers: 7, and the output's. Gradients go to their optimizer shards."""
    sharded = [2 * 7, 2 * 7 + 1]
    found = [communications(one, "gradients to their optimizer shard") for one in compiled]
    assert [sum(one["count"] for one in rank) for rank in found] == sharded
    assert {one["operation"] for rank in found for one in rank} == {"ReduceScatter"}
