"""A stage rl on hosts that are divided: msrun on those that train, servers on those that sample."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.hosts.commands import host_commands
from pcl_reasoner.hosts.scripts import write_scripts
from pcl_reasoner.runner.plan import PlannedStage, make_plan
from pcl_reasoner.runner.recipe import load_recipe

TRAINING = [f"node{number:02d}" for number in range(1, 9)]
SAMPLING = [f"node{number:02d}" for number in range(9, 17)]


def stage(tmp_path: Path, launch: str, name: str = "rl_1") -> PlannedStage:
    plan = make_plan(load_recipe("am_thinking_v1", launch), tmp_path / "runs", until=name)
    return plan.stages[-1]


def by_hand(tmp_path: Path) -> str:
    """The launch file without servers that the stage starts: a person starts them."""
    launch = read_yaml(find("atlas_910c_rl", "launch"))
    del launch["placement"]["sampling"]
    (tmp_path / "own.yaml").write_text(yaml_text(launch))
    return str(tmp_path / "own.yaml")


def test_only_the_hosts_that_do_not_sample_train(tmp_path: Path) -> None:
    [training] = host_commands(stage(tmp_path, "atlas_910c_rl"))
    assert training.name == "rl_1"
    assert [one.host for one in training.commands] == TRAINING
    for rank, one in enumerate(training.commands):
        assert "--worker_num=64 --local_worker_num=8 --master_addr=node01" in one.start
        assert f"--node_rank={rank} " in one.start
        ranks = f"ranks {8 * rank} to {8 * rank + 7}"
        assert one.purpose == (
            f"am_thinking_v1/rl_1: {ranks}; run --start ssh starts them, once for all rounds"
        )
        assert one.start.endswith("mindformers.yaml")


def test_servers_are_on_the_other_hosts_and_open_to_the_stage_alone(tmp_path: Path) -> None:
    training, servers = host_commands(stage(tmp_path, by_hand(tmp_path)))
    assert [one.host for one in training.commands] == TRAINING
    assert [one.host for one in servers.commands] == SAMPLING
    assert servers.name == "rl_1.sampling"
    for one in servers.commands:
        assert "VLLM_SERVER_DEV_MODE=1 vllm serve " in one.start
        assert one.start.endswith("--middleware pclr_guard.Guard")
        assert "--tensor-parallel-size" not in one.start  # server_devices is 1


def test_a_person_can_start_the_servers_but_not_the_training(tmp_path: Path) -> None:
    [servers] = write_scripts(stage(tmp_path, by_hand(tmp_path)))
    assert (servers.title, servers.hosts) == ("am_thinking_v1/rl_1.sampling", 8)
    job = (servers.folder / "job.sbatch").read_text()
    assert "#SBATCH --nodes=8" in job
    assert [file.name for file in servers.files[:-2]] == [
        f"host_{rank:02d}_{host}.sh" for rank, host in enumerate(SAMPLING)
    ]
    assert write_scripts(stage(tmp_path, "atlas_910c_rl")) == []


def test_other_stages_use_all_hosts(tmp_path: Path) -> None:
    [training] = host_commands(stage(tmp_path, "atlas_910c_rl", "train"))
    assert [one.host for one in training.commands] == TRAINING + SAMPLING


def test_the_layout_must_have_the_devices_of_the_hosts_that_train(tmp_path: Path) -> None:
    launch = read_yaml(find("atlas_910c_rl", "launch"))
    launch["placement"]["rollout"]["hosts"] = SAMPLING[:4]
    (tmp_path / "own.yaml").write_text(yaml_text(launch))
    said = "2 x 8 x 4 = 64 ranks for 12 hosts x 8 devices = 96"
    with pytest.raises(InputError, match=re.escape(said)):
        load_recipe("am_thinking_v1", str(tmp_path / "own.yaml"))
