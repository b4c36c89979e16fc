"""Runs of the tiny stages in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_stages

from pcl_reasoner import stages
from pcl_reasoner.core import artifact
from pcl_reasoner.core.stage import Counts
from pcl_reasoner.runner import runner
from pcl_reasoner.runner.plan import Plan, PlannedStage, make_plan
from pcl_reasoner.runner.recipe import load_recipe


class Notes:
    """A view that remembers."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None: ...

    def started(self, planned: PlannedStage, index: int, total: int) -> None:
        self.seen.append(f"started {planned.spec.name}")

    def skipped(self, planned: PlannedStage, index: int, total: int) -> None:
        self.seen.append(f"skipped {planned.spec.name}")

    def finished(self, planned: PlannedStage, counts: Counts, seconds: float) -> None:
        self.seen.append(f"finished {planned.spec.name} {counts.kept}/{counts.read}")

    def warned(self, message: str) -> None:
        self.seen.append(f"warned {message}")

    def noted(self, message: str) -> None:
        self.seen.append(f"noted {message}")


def run(
    tmp_path: Path,
    *overrides: str,
    runs: Path | None = None,
    until: str | None = None,
    from_stage: str | None = None,
    verify: bool = False,
) -> tuple[Plan, list[str]]:
    recipe = load_recipe(
        str(tmp_path / "tiny.yaml"), str(tmp_path / "here.yaml"), overrides=overrides
    )
    notes = Notes()
    plan = make_plan(recipe, runs or tmp_path / "runs", until, trust_hashes=not verify)
    runner.run(plan, notes, runner.stages_to_repeat(plan, from_stage))
    return plan, notes.seen


def work(tmp_path: Path) -> list[str]:
    return (tmp_path / "trace").read_text().split("\n")[:-1]


def payload(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in artifact.payload_files(folder)
    }


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tiny stages beside the real ones, their recipe, and a trace of their work."""
    for name, stage in tiny_stages.TINY.items():
        monkeypatch.setitem(stages.STAGES, name, stage)
    monkeypatch.setenv(tiny_stages.TRACE, str(tmp_path / "trace"))
    tiny_stages.write(tmp_path)
