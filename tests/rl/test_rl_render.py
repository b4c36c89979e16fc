"""The configuration of MindFormers: what rounds replace, and what the recipe decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rl_helpers import rl_settings
from train_helpers import write_policy

from pcl_reasoner.rl.render import round_yaml
from pcl_reasoner.rounds.config import RlConfig


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy") / "policy")


def rendered(policy: Path, **changes: Any) -> dict[str, Any]:
    config = RlConfig.model_validate(rl_settings(**changes))
    return round_yaml(config, policy, policy.parent / "rl.partial")


def test_what_a_round_replaces(policy: Path) -> None:
    value = rendered(policy, max_rounds=7, checkpoint_rounds=3, warmup_rounds=2, clip_grad=0.5)
    assert value["runner_wrapper"] == {"type": "PclRoundStepCell", "max_grad_norm": 0.5}
    rate = {"type": "ConstantWarmUpLR", "learning_rate": 1e-3}
    assert value["lr_schedule"] == rate | {"warmup_steps": 2, "total_steps": 7}
    assert value["train_dataset"]["data_loader"]["type"] == "PclRoundLoader"
    callbacks = {one["type"]: one for one in value["callbacks"]}
    assert callbacks["PclRounds"]["rounds"] == "rounds" and "PclMetrics" not in callbacks
    assert callbacks["CheckpointMonitor"]["checkpoint_rounds"] == 3


def test_the_recipes_own_keys_of_mindformers_come_last(policy: Path) -> None:
    own = {"lr_schedule": {"type": "LinearWithWarmUpLR", "lr_end": 1e-5}, "new": {"key": 1}}
    value = rendered(policy, mindformers=own)
    assert value["lr_schedule"] == {
        "type": "LinearWithWarmUpLR",
        "lr_end": 1e-5,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
        "total_steps": 3,
    }
    assert value["new"] == {"key": 1}
    assert value["runner_wrapper"]["type"] == "PclRoundStepCell"
