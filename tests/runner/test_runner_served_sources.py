"""The judge and the reward model are sources, which a launch file or an override can name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import yaml_text
from pcl_reasoner.runner.recipe import Recipe, load_recipe

JUDGE = "sources.judge.path=/models/judge"


def launch(folder: Path, **keys: Any) -> str:
    value: dict[str, Any] = {
        "name": "x",
        "title": "x",
        "profile": "paper",
        "verified": "No.",
        "hashed": {"train": {"device": "Ascend", "model_parallel": 4, "pipeline_stage": 2}},
        "placement": {
            "devices_per_host": 8,
            "sampling": {"executable": "/v/vllm"},
            "judging": {"executable": "/v/vllm"},
        },
    }
    file = folder / "launch.yaml"
    file.write_text(yaml_text(value | keys))
    return str(file)


def v15(launched: str, *overrides: str) -> Recipe:
    return load_recipe("v15_opg", launched, overrides=overrides)


def test_an_override_or_the_launch_file_names_the_judge(tmp_path: Path) -> None:
    assert "judge" not in v15(launch(tmp_path)).stages["grade"].inputs
    one = v15(launch(tmp_path), JUDGE)
    assert one.stages["grade"].inputs["judge"] == ["judge"]
    assert (one.sources["judge"].path, one.sources["judge"].kind) == ("/models/judge", "model")
    named = launch(tmp_path, sources={"judge": {"path": "/models/other", "kind": "model"}})
    assert v15(named).sources["judge"].path == "/models/other"
    assert v15(named, JUDGE).sources["judge"].path == "/models/judge"
    hub = ("sources.judge.hub=Qwen/Qwen3-32B", "sources.judge.revision=main")
    assert v15(launch(tmp_path), *hub).sources["judge"].kind == "model"


def test_a_stage_that_asks_no_judge_does_not_read_it(tmp_path: Path) -> None:
    rule = v15(launch(tmp_path), JUDGE, "grade.method=rule")
    assert "judge" not in rule.stages["grade"].inputs
    laptop = load_recipe("v15_opg", overrides=(JUDGE,))
    assert "judge" not in laptop.stages["grade"].inputs


def test_a_launch_file_replaces_the_policy(tmp_path: Path) -> None:
    mine = {"policy": {"path": "/models/mine", "kind": "model"}}
    found = v15(launch(tmp_path, sources=mine), JUDGE)
    assert found.sources["policy"].path == "/models/mine"
    assert found.sources["policy"].hub is None


def test_another_unknown_source_is_an_error_still(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such source 'juge'"):
        v15(launch(tmp_path), "sources.juge.path=/models/judge")
