"""The smoke test's order of parts, what it remembers, and what it says of a failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured_runs import times, write_run

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.hardware_check.outcome import Check, Outcome
from pcl_reasoner.precompile import compile_plan
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.smoke import assumptions
from pcl_reasoner.smoke import smoke as room
from pcl_reasoner.smoke.smoke import PARTS, Part, shareable, smoke
from pcl_reasoner.smoke.trial import Kept, Trial

GOOD = Check("answers", 30, 30, 0, 0, True)
BAD = Check("answers", 29, 30, "Look at /home/me/runs.", 0, False)


def trial(runs: Path, *overrides: str, launch: str = "laptop.yaml") -> Trial:
    return Trial(launch, None, None, overrides, runs, 60.0, NoProgress())


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the parts that ran; each is ok."""
    names: list[str] = []

    def part(name: str, old: Part) -> Part:
        def run(one: Trial) -> Outcome:
            names.append(name)
            return Outcome([GOOD])

        return Part(old.title, run, old.needs)

    for name, old in list(PARTS.items()):
        monkeypatch.setitem(PARTS, name, part(name, old))
    monkeypatch.setattr(assumptions, "changed_assumptions", lambda *_: {"notes": ["none"]})
    monkeypatch.setattr(room, "shape_of", lambda *_: None)
    return names


def statuses(one: Trial, again: bool = False) -> dict[str, str]:
    said: list[str] = []
    report = smoke(one, again, said.append, lambda entry: None)
    return {part["name"]: part["status"] for part in report["parts"]}


def replaced(name: str, run: Callable[[Trial], Outcome], patch: pytest.MonkeyPatch) -> None:
    old = PARTS[name]
    patch.setitem(PARTS, name, Part(old.title, run, old.needs))


def test_a_part_that_is_ok_is_not_run_again_nor_are_those_after_it(
    ran: list[str], tmp_path: Path
) -> None:
    assert set(statuses(trial(tmp_path)).values()) == {"ok"}
    assert ran == list(PARTS)
    assert set(statuses(trial(tmp_path)).values()) == {"ok"}
    assert len(ran) == len(PARTS)
    statuses(trial(tmp_path), again=True)
    assert len(ran) == 2 * len(PARTS)
    # Other settings are another trial.
    statuses(trial(tmp_path, "train.learning_rate=2e-3"))
    assert len(ran) == 3 * len(PARTS)


def test_what_needs_a_part_that_is_run_again_is_run_again(ran: list[str], tmp_path: Path) -> None:
    statuses(trial(tmp_path))
    kept = Kept(trial(tmp_path), again=False)
    del kept.parts["resume"]
    kept.keep(kept.parts["versions"])
    ran.clear()
    statuses(trial(tmp_path))
    assert ran == ["resume", "export", "prove", "answers"]


def test_a_wrong_part_stops_those_that_need_it_and_no_others(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(one: Trial) -> Outcome:
        raise StageError(f"{tmp_path}/secret/model.safetensors: truncated.\nexit code 1")

    replaced("prove", lambda one: Outcome([GOOD, BAD]), monkeypatch)
    replaced("convert", fails, monkeypatch)
    one = trial(tmp_path)
    found = statuses(one)
    wrong = {name for name, status in found.items() if status == "wrong"}
    assert wrong == {"prove", "convert"}
    assert found["train"] == found["export"] == "ok" and found["answers"] == "not run"
    assert one.outcomes["prove"]["why"] == "1 of 2 comparisons"
    # The terminal shows the path, the file to send back does not.
    report = smoke(one, False, lambda title: None, lambda entry: None)
    told, sent = (
        next(part["why"] for part in found["parts"] if part["name"] == "convert")
        for found in (report, shareable(report))
    )
    assert told == f"{tmp_path}/secret/model.safetensors: truncated.\nexit code 1"
    assert sent == "…/model.safetensors: truncated.\nexit code 1"
    (bad,) = (one for part in shareable(report)["parts"] for one in part["checks"] if not one["ok"])
    assert bad["got"] == 29 and bad["error"] == "Look at …"
    replaced("train", fails, monkeypatch)
    one = trial(tmp_path)
    report = smoke(one, True, lambda title: None, lambda entry: None)
    whys = {part["name"]: part["why"] for part in report["parts"] if part["status"] == "not run"}
    assert whys == {
        "resume": "needs train",
        "export": "needs resume",
        "prove": "needs export",
        "answers": "needs prove",
    }
    assert report["plan"]["notes"] == ["training did not end: no assumption"]


def test_a_plan_that_fails_does_not_lose_the_report(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> dict[str, Any]:
        raise InputError("2 timed steps, expected at least 3")

    monkeypatch.setattr(assumptions, "changed_assumptions", fails)
    report = smoke(trial(tmp_path), False, lambda title: None, lambda entry: None)
    assert report["plan"]["notes"] == ["2 timed steps, expected at least 3"]


def test_several_hosts_need_start(ran: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"names 16 hosts.*Give --start ssh"):
        statuses(trial(tmp_path, launch="atlas_910c_16x16"))
    assert not ran


def test_a_failure_shows_the_commands_own_error(tmp_path: Path) -> None:
    one = trial(tmp_path)
    one.folder.mkdir(parents=True)
    one.log("export").write_text("[1/2] a stage\nerror: stage smoke/export: wrong.\nDo this.\n")
    assert one.failure("export", 1) == "error: stage smoke/export: wrong.\nDo this.\nexit code 1"
    one.log("export").write_text("Traceback\nKeyError: 3\n")
    assert one.failure("export", 3) == "Traceback\nKeyError: 3\nexit code 3"


def test_the_hours_of_the_recipes_change_with_the_measured_speed_alone(tmp_path: Path) -> None:
    """Two runs of V1's own layout, one of them with steps twice as long.

    The trial's own lengths do not count: V1.5 keeps its published ones.
    """
    launch, runs = "one_node_7b", tmp_path / "runs"
    recipe = load_recipe("v1_sft", launch=launch)
    config = compile_plan.configuration(make_plan(recipe, runs, until="train"))
    hours = {}
    for seconds in (200.0, 400.0):
        metrics = write_run(tmp_path / f"{seconds:g}", times(seconds), config, 514, 7958)
        hours[seconds] = {
            one["stage"]: one for one in assumptions.recipe_hours(launch, runs, metrics)
        }
    first, second = (hours[seconds]["v1_sft/train"] for seconds in (200.0, 400.0))
    assert first["assumed"] == second["assumed"] == pytest.approx(299, rel=0.01)
    # 5 182 steps of 201 and 401 s (a second between steps), with the published 8 158 tokens.
    assert first["measured"] == pytest.approx(5182 * 201 / 3600, rel=0.02)
    assert second["measured"] == pytest.approx(5182 * 401 / 3600, rel=0.02)
    assert hours[400.0]["v15_opg/train"]["measured"] > hours[200.0]["v15_opg/train"]["measured"]
