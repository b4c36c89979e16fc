"""Every name that was changed is refused by its old name, with the new one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.handlers.packing import SegmentPackingHandler
from pcl_reasoner.losses import LOSSES, RENAMED_PARAMETERS
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.stages import RENAMED_STAGES, STAGES

TRAIN = {"loss": "sft", "seq_length": 64, "learning_rate": 1e-5, "learning_rate_end": 0.0}
TRAIN |= {"warmup_ratio": 0.0, "epochs": 1, "global_batch_size": 1, "device": "CPU"}
PROBE = {"every": 5}


def settings() -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """(stage, old name, settings that have it, new name) of every key and value."""
    for stage in STAGES:
        model = STAGES[stage].config_class()
        for path, inner in [("", model), *parts_of(model)]:
            for old, new in inner.renamed.items():
                yield stage, old, nested(path, {old: 1}), new
            for key, values in inner.renamed_values.items():
                for old, new in values.items():
                    yield stage, old, nested(path, {key: old}), new


def parts_of(model: type[StageConfig]) -> list[tuple[str, type[StageConfig]]]:
    """The settings inside of settings: ``stop_if`` and ``probe`` of train."""
    found = []
    for name, field in model.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        found += [(name, k) for k in kinds if isinstance(k, type) and issubclass(k, StageConfig)]
    return found


def nested(path: str, value: dict[str, Any]) -> dict[str, Any]:
    if not path:
        return value
    return {path: {**(PROBE if path == "probe" else {}), **value}}


CASES = list(settings())


def refused(tmp_path: Path, stages: dict[str, Any]) -> str:
    recipe = {"name": "r", "sources": {"x": {"path": "x"}}, "stages": stages}
    launch = {"name": "l", "title": "L", "profile": "paper", "verified": "Nothing."}
    for name, value in (("r", recipe), ("l", launch)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(value))
    with pytest.raises(InputError) as caught:
        load_recipe(str(tmp_path / "r.yaml"), str(tmp_path / "l.yaml"))
    return str(caught.value)


@pytest.mark.parametrize(("stage", "old", "given", "new"), CASES, ids=lambda value: str(value)[:40])
def test_an_old_key_or_value(
    stage: str, old: str, given: dict[str, Any], new: str, tmp_path: Path
) -> None:
    said = refused(tmp_path, {stage: {**(TRAIN if stage == "train" else {}), **given}})
    assert re.search(rf"\b{old}:? is called {new} now\.", said), said


@pytest.mark.parametrize(("old", "new"), RENAMED_STAGES.items())
def test_an_old_stage(old: str, new: str, tmp_path: Path) -> None:
    assert f"no such stage {old!r}. It is called {new} now." in refused(tmp_path, {old: {}})
    assert new in STAGES


@pytest.mark.parametrize(("old", "new"), RENAMED_PARAMETERS.items())
def test_an_old_parameter_of_a_loss(old: str, new: str, tmp_path: Path) -> None:
    loss = next(name for name, known in LOSSES.items() if new in known.parameters)
    train = {**TRAIN, "loss": loss, "loss_parameters": {old: 0.5}}
    assert f"{old} is called {new} now" in refused(tmp_path, {"train": train})


def test_an_old_keyword_of_a_handler() -> None:
    with pytest.raises(InputError, match="one_a_row is called one_segment_per_row now"):
        SegmentPackingHandler(8, 0, 0, one_a_row=True)


def test_the_changes_table_has_all_of_them() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", text, re.M)
    wanted = {(old, new) for _, old, _, new in CASES}
    wanted |= set(RENAMED_STAGES.items()) | set(RENAMED_PARAMETERS.items())
    assert wanted <= set(rows)
    assert len(rows) == len(set(rows))
