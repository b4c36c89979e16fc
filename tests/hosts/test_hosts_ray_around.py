"""When a stage's Ray is started on the launch file's hosts, and what is said where it cannot be."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.hosts import ray_cluster
from pcl_reasoner.hosts.ray_cluster import ray_around
from pcl_reasoner.runner.plan import PlannedStage
from pcl_reasoner.stages import STAGES

DATA_STAGES = [name for name, stage in STAGES.items() if stage.config_class().uses_data_engine]
RAY = {"engine": "ray", "workers": 4}


def stage(kind: str, folder: Path, data: dict[str, Any]) -> tuple[PlannedStage, StageContext]:
    placement = Placement.model_validate({"hosts": ["nohost.invalid", "other"], "data": data})
    launch = SimpleNamespace(placement=placement)
    planned = SimpleNamespace(
        spec=SimpleNamespace(config=STAGES[kind].config_class()),
        recipe=SimpleNamespace(launch=launch),
        folder=folder / "runs" / f"{kind}-12345678",
    )
    context = StageContext(kind, folder / "apart.jsonl", placement, start="ssh")
    return cast(PlannedStage, planned), context


@pytest.mark.parametrize(
    ("kind", "data", "start"),
    [
        ("convert", RAY, None),
        ("convert", RAY, "local"),
        ("convert", {**RAY, "address": "auto"}, "ssh"),
        ("convert", {"engine": "local"}, "ssh"),
        ("train", RAY, "ssh"),
    ],
)
def test_nothing_is_started_where_nothing_is_asked_for(
    kind: str, data: dict[str, Any], start: str | None, tmp_path: Path
) -> None:
    planned, context = stage(kind, tmp_path, data)
    context.start = start
    before = context.placement
    with ray_around(planned, context):
        assert context.placement == before


@pytest.mark.parametrize("kind", DATA_STAGES)
def test_an_unknown_host_is_told(kind: str, tmp_path: Path) -> None:
    planned, context = stage(kind, tmp_path, RAY)
    with (
        pytest.raises(StageError, match=r"nohost\.invalid: the name is not known"),
        ray_around(planned, context),
    ):
        pytest.fail("it started")


def test_a_data_stage_is_given_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"address": "10.0.0.1:6379", "own_address": "10.0.0.9"}
    monkeypatch.setattr(ray_cluster, "ray_on_hosts", lambda *_: nullcontext(there))
    planned, context = stage("lengths", tmp_path, RAY)
    with ray_around(planned, context):
        assert context.placement.data.model_dump() == {**RAY, **there}


def test_every_stage_that_uses_the_data_engine_is_known() -> None:
    """Their modules read the placement's ``data``; another one would stay on one machine."""
    package = Path(ray_cluster.__file__).parent.parent
    rooms = {
        path.parent.name
        for path in package.glob("*/*.py")
        if "context.placement.data" in path.read_text(encoding="utf-8")
    }
    assert rooms == {STAGES[name].module.split(".")[1] for name in DATA_STAGES}
    assert DATA_STAGES == ["convert", "difficulty", "lengths", "contamination"]
