"""Plans: fingerprints before anything runs, and the reason for which a stage is to run."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_stages

from pcl_reasoner import stages
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.runner import runner
from pcl_reasoner.runner.plan import Plan, PlannedStage, check_others, make_plan, state
from pcl_reasoner.runner.recipe import Recipe, load_recipe

SECOND = """
name: second
title: Reads another recipe
sources:
  numbers: {recipe: tiny.yaml, stage: numbers}
  inside: {recipe: tiny.yaml, stage: half, path: even.json}
stages:
  half: {}
  again: {stage: half, inputs: {numbers: inside}}
"""


class Quiet:
    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None: ...
    def started(self, planned: PlannedStage, index: int, total: int) -> None: ...
    def skipped(self, planned: PlannedStage, index: int, total: int) -> None: ...
    def finished(self, planned: PlannedStage, counts: object, seconds: float) -> None: ...
    def warned(self, message: str) -> None: ...

    def noted(self, message: str) -> None: ...


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, stage in tiny_stages.TINY.items():
        monkeypatch.setitem(stages.STAGES, name, stage)


def load(tmp_path: Path, name: str = "tiny", recipe: str = "", *overrides: str) -> Recipe:
    if not (tmp_path / "tiny.yaml").exists():
        tiny_stages.write(tmp_path)
    if recipe:
        (tmp_path / f"{name}.yaml").write_text(recipe)
    return load_recipe(
        str(tmp_path / f"{name}.yaml"), str(tmp_path / "here.yaml"), overrides=overrides
    )


def fingerprints(plan: Plan) -> dict[str, str]:
    return {planned.title: planned.fingerprint for planned in plan.stages}


def reasons(plan: Plan) -> dict[str, str]:
    return {one.spec.name: state(one).removeprefix("to run: ") for one in plan.stages}


def changed(before: Plan, after: Plan) -> set[str]:
    old, new = fingerprints(before), fingerprints(after)
    return {title.split("/")[1] for title in new if old.get(title) != new[title]}


def test_equal_recipes_have_equal_fingerprints_wherever_they_are(tmp_path: Path) -> None:
    first = make_plan(load(tmp_path), tmp_path / "runs")
    second = make_plan(load(tmp_path), tmp_path / "other")
    assert fingerprints(first) == fingerprints(second)
    assert [planned.title for planned in first.stages] == [
        "tiny/numbers",
        "tiny/half",
        "tiny/slow",
        "tiny/report",
    ]


def test_a_change_reaches_what_reads_it_and_nothing_else(tmp_path: Path) -> None:
    before = make_plan(load(tmp_path), tmp_path / "runs")

    def after(override: str) -> set[str]:
        return changed(before, make_plan(load(tmp_path, "tiny", "", override), tmp_path / "runs"))

    assert after("numbers.n=9") == {"numbers", "half", "slow", "report"}
    assert after("half.rate=0.6") == {"half", "slow", "report"}
    assert after("slow.n=6") == {"slow", "report"}
    assert after("slow.n=5") == set()


def test_a_file_named_in_a_configuration_counts_by_its_content(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Is it even?")

    def plan() -> Plan:
        return make_plan(load(tmp_path, "tiny", "", f"half.prompt={prompt}"), tmp_path / "runs")

    before = plan()
    recipe = load(tmp_path, "tiny", "", f"half.prompt={prompt}")
    runner.run(make_plan(recipe, tmp_path / "runs"), Quiet())
    assert changed(before, plan()) == set()
    prompt.write_text("Is it odd?")
    after = plan()
    assert changed(before, after) == {"half", "slow", "report"}
    assert reasons(after)["half"] == f"the content of prompt ({prompt}) changed"
    prompt.write_text("Is it even?")
    assert changed(before, plan()) == set()
    prompt.unlink()
    assert changed(before, plan()) == {"half", "slow", "report"}


def test_each_file_of_a_list_counts_by_its_content(tmp_path: Path) -> None:
    """``contamination.against`` names shipped fingerprints and files."""
    own = tmp_path / "own.json"
    own.write_text("{}")
    override = f"half.against=[aime24, {own}]"

    def plan() -> Plan:
        return make_plan(load(tmp_path, "tiny", "", override), tmp_path / "runs")

    before = plan()
    assert list(before.stages[1].identity["files"]) == ["against.1"]
    runner.run(before, Quiet())
    assert reasons(plan())["half"] == "done"
    own.write_text("[]")
    assert reasons(plan())["half"] == f"the content of against (['aime24', '{own}']) changed"


def test_a_new_version_of_a_stages_code_is_another_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    before = make_plan(load(tmp_path), tmp_path / "runs")
    newer = dataclasses.replace(stages.STAGES["half"], version=2)
    monkeypatch.setitem(stages.STAGES, "half", newer)
    after = make_plan(load(tmp_path), tmp_path / "runs")
    assert changed(before, after) == {"half", "slow", "report"}


def test_placement_changes_nothing_and_the_hashed_half_does(tmp_path: Path) -> None:
    before = make_plan(load(tmp_path), tmp_path / "runs")

    def after(more: str) -> set[str]:
        (tmp_path / "here.yaml").write_text(tiny_stages.LAUNCH + more)
        return changed(before, make_plan(load(tmp_path), tmp_path / "runs"))

    assert after("placement: {threads: 7, hosts: [a, b]}") == set()
    assert after("hashed: {slow: {n: 2}}") == {"slow", "report"}


def test_the_report_follows_what_only_it_shows(tmp_path: Path) -> None:
    before = make_plan(load(tmp_path), tmp_path / "runs")
    expecting = load(tmp_path, "tiny", tiny_stages.RECIPE + "expect: {even: 3}\n")
    assert changed(before, make_plan(expecting, tmp_path / "runs")) == {"report"}


def test_until_plans_what_that_stage_needs(tmp_path: Path) -> None:
    plan = make_plan(load(tmp_path), tmp_path / "runs", until="half")
    assert [planned.spec.name for planned in plan.stages] == ["numbers", "half"]


def test_all_missing_sources_at_once(tmp_path: Path) -> None:
    recipe = """
name: tiny
sources: {a: {path: /absent/a}, b: {path: /absent/b}, unused: {path: /absent/c}}
stages:
  numbers: {inputs: {source: a}}
  more: {stage: numbers, inputs: {source: [a, b]}}
"""
    plan = make_plan(load(tmp_path, "tiny", recipe), tmp_path / "runs")
    assert [problem.split(":")[0] for problem in plan.missing] == ["source a", "source b"]
    assert list(plan.stages[1].inputs) == ["source.a", "source.b"]


class TestOtherRecipes:
    def test_a_stage_of_another_recipe_is_that_recipes_own(self, tmp_path: Path) -> None:
        load(tmp_path)
        plan = make_plan(load(tmp_path, "second", SECOND), tmp_path / "runs")
        assert [planned.title for planned in plan.stages] == [
            "tiny/numbers",
            "tiny/half",
            "second/half",
            "second/again",
        ]
        own = fingerprints(make_plan(load(tmp_path), tmp_path / "runs"))
        assert fingerprints(plan)["tiny/half"] == own["tiny/half"]
        half, again = plan.stages[1], plan.stages[3]
        assert again.inputs["numbers"].path == half.folder / "even.json"
        assert again.inputs["numbers"].fingerprint == f"{half.fingerprint}/even.json"

    def test_two_recipes_of_one_name_are_refused(self, tmp_path: Path) -> None:
        load(tmp_path)
        with pytest.raises(InputError, match="has the same name 'tiny'"):
            recipe = load(tmp_path, "second", SECOND.replace("name: second", "name: tiny"))
            make_plan(recipe, tmp_path / "runs")

    def test_check_finds_what_is_wrong_over_there(self, tmp_path: Path) -> None:
        load(tmp_path)
        recipe = load(tmp_path, "second", SECOND.replace("stage: half, path", "stage: hlf, path"))
        (problem,) = check_others(recipe)
        assert "sources.inside: " in problem
        assert "has no stage 'hlf'. Did you mean 'half'?" in problem
        (tmp_path / "tiny.yaml").write_text(tiny_stages.RECIPE.replace("n: 8", "m: 8"))
        problems = check_others(load(tmp_path, "second", SECOND))
        assert problems
        assert all("stage numbers: m: unknown key" in said for said in problems)

    def test_of_another_recipe_only_what_is_read_is_checked(self, tmp_path: Path) -> None:
        load(tmp_path, "tiny", tiny_stages.RECIPE)
        (tmp_path / "tiny.yaml").write_text(tiny_stages.RECIPE.replace("slow: {", "slow: {m: 1, "))
        recipe = load(tmp_path, "second", SECOND)
        assert check_others(recipe) == []
        titles = [planned.title for planned in make_plan(recipe, tmp_path / "runs").stages]
        assert titles[:2] == ["tiny/numbers", "tiny/half"]

    def test_recipes_that_read_one_another_in_a_circle(self, tmp_path: Path) -> None:
        back = """
name: tiny
sources: {numbers: {recipe: second.yaml, stage: half}}
stages: {half: {}}
"""
        load(tmp_path, "tiny", back)
        recipe = load(tmp_path, "second", SECOND.replace("stage: numbers", "stage: half"))
        assert check_others(recipe) == []
        with pytest.raises(InputError, match="second/half -> tiny/half -> second/half"):
            make_plan(recipe, tmp_path / "runs", until="half")


class TestWhy:
    def run(self, tmp_path: Path, *overrides: str) -> Plan:
        plan = make_plan(load(tmp_path, "tiny", "", *overrides), tmp_path / "runs")
        runner.run(plan, Quiet())
        return plan

    def plan(self, tmp_path: Path, *overrides: str) -> Plan:
        return make_plan(load(tmp_path, "tiny", "", *overrides), tmp_path / "runs")

    def test_never_run_and_done(self, tmp_path: Path) -> None:
        assert set(reasons(self.plan(tmp_path)).values()) == {"never run with these settings"}
        assert set(reasons(self.run(tmp_path)).values()) == {"done"}

    def test_names_the_key_and_both_values_and_what_follows(self, tmp_path: Path) -> None:
        self.run(tmp_path)
        said = reasons(self.plan(tmp_path, "half.rate=0.25"))
        assert said["numbers"] == "done"
        assert said["half"] == "rate is 0.25, was 0.5"
        assert said["slow"] == "input half changed (tiny/half)"

    def test_names_a_changed_fact_of_the_report(self, tmp_path: Path) -> None:
        self.run(tmp_path)
        recipe = load(tmp_path, "tiny", tiny_stages.RECIPE.replace("even", "odd"))
        said = reasons(make_plan(recipe, tmp_path / "runs"))
        assert said["report"] == "the recipe's title changed"

    def test_names_what_was_cut_off(self, tmp_path: Path) -> None:
        plan = self.plan(tmp_path)
        for planned in plan.stages:
            planned.partial.mkdir(parents=True)
        said = reasons(plan)
        assert said["slow"].startswith("was interrupted, resumes; ")
        assert not said["half"].startswith("was interrupted"), "half cannot go on, it starts anew"

    def test_a_broken_manifest_is_not_done(self, tmp_path: Path) -> None:
        plan = self.run(tmp_path)
        (plan.stages[1].folder / "manifest.json").write_bytes(b"\xff{")
        said = reasons(self.plan(tmp_path))
        assert said["half"] == "its folder has no complete manifest of these settings"

    def test_a_manifest_of_another_fingerprint_is_not_done(self, tmp_path: Path) -> None:
        plan = self.run(tmp_path)
        manifest = plan.stages[1].folder / "manifest.json"
        other = plan.stages[1].fingerprint[:8] + "0" * 56
        manifest.write_text(manifest.read_text().replace(plan.stages[1].fingerprint, other))
        assert not plan.stages[1].done


def test_tokenizer_is_the_nearest_policys(tmp_path: Path) -> None:
    plan = make_plan(load(tmp_path), tmp_path / "runs")
    with pytest.raises(InputError, match="neither it nor a stage before it reads a policy"):
        plan.tokenizer_file(plan.stages[2])
    plan.stages[0].inputs["policy"] = plan.stages[1].inputs["numbers"]
    expected = plan.stages[1].inputs["numbers"].path / "tokenizer.json"
    assert plan.tokenizer_file(plan.stages[2]) == expected
