"""What is done: damaged artifacts run again, and what was made of other content is not done."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_stages
from runner_helpers import Notes, payload, run, work

from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.runner import runner
from pcl_reasoner.runner.plan import Plan, make_plan, state
from pcl_reasoner.runner.recipe import load_recipe

pytestmark = pytest.mark.usefixtures("tiny")


def file_of(plan: Plan, title: str, name: str) -> Path:
    return next(one.folder for one in plan.stages if one.title == title) / name


def everything(plan: Plan) -> dict[str, dict[str, bytes]]:
    return {one.title: payload(one.folder) for one in plan.stages}


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [Path.unlink, cut, flip])
@pytest.mark.parametrize(
    ("title", "name", "again"),
    [
        ("tiny/numbers", "numbers.json", ["numbers"]),
        ("tiny/half", "even.json", ["half"]),
        ("tiny/report", "report.html", ["page"]),
    ],
)
def test_a_damaged_artifact_is_made_again_and_that_is_said(
    tmp_path: Path, damage: Callable[[Path], None], title: str, name: str, again: list[str]
) -> None:
    plan, _ = run(tmp_path)
    before, done = everything(plan), work(tmp_path)
    file = file_of(plan, title, name)
    damage(file)
    plan, seen = run(tmp_path)
    said = [one for one in seen if one.startswith("noted")]
    assert len(said) == 1
    assert said[0].startswith(f"noted {title} is damaged and is made again: {file}: ")
    assert work(tmp_path)[len(done) :] == again
    assert everything(plan) == before
    assert run(tmp_path)[1] == []


def test_a_flip_that_nobody_reads_now_is_still_found(tmp_path: Path) -> None:
    """All is done, so nothing reads it; but it has changed since its hash was remembered."""
    plan, _ = run(tmp_path)
    flip(file_of(plan, "tiny/slow", "records.jsonl"))
    assert any("tiny/slow is damaged" in one for one in run(tmp_path)[1])


def test_bytes_that_change_without_a_trace_need_verify(tmp_path: Path) -> None:
    """The inode, size and times that are remembered are those of the damaged file."""
    plan, _ = run(tmp_path)
    file = file_of(plan, "tiny/half", "even.json")
    right = artifact.hash_file(file)
    flip(file)
    plan.hashes.remember(file, right)
    plan.hashes.save()
    assert run(tmp_path)[1] == []
    _, seen = run(tmp_path, verify=True)
    assert any("tiny/half is damaged" in one for one in seen)


def test_a_damaged_manifest_counts_as_none(tmp_path: Path) -> None:
    plan, _ = run(tmp_path)
    file = file_of(plan, "tiny/half", "manifest.json")
    manifest = json.loads(file.read_text())
    manifest["counts"]["kept"] = 5
    file.write_text(json.dumps(manifest))
    done = work(tmp_path)
    plan, _ = run(tmp_path)
    assert work(tmp_path)[len(done) :] == ["half"]


def test_damage_while_the_run_goes_on_stops_the_stage_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(str(tmp_path / "tiny.yaml"), str(tmp_path / "here.yaml"))
    plan = make_plan(recipe, tmp_path / "runs")

    class Flips(Notes):
        def started(self, planned: object, index: int, total: int) -> None:
            if index == 2:
                flip(file_of(plan, "tiny/half", "even.json"))

    with pytest.raises(StageError, match="stage tiny/slow: its input is damaged: .*even.json"):
        runner.run(plan, Flips())
    _, seen = run(tmp_path)
    assert any("tiny/half is damaged" in one for one in seen)
    assert work(tmp_path) == ["numbers", "half", "half", *(f"slow {i}" for i in range(5)), "page"]


def test_an_added_file_is_refused_and_never_removed(tmp_path: Path) -> None:
    plan, _ = run(tmp_path)
    added = file_of(plan, "tiny/half", "part-00007.parquet")
    added.write_text("mine")
    with pytest.raises(StageError, match="files that tiny/half did not make: .*part-00007"):
        run(tmp_path, "slow.n=6")
    assert added.read_text() == "mine"


class TestMadeFrom:
    def test_other_content_of_an_input_runs_what_reads_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As after sampling again: the settings are the same, the responses are others."""
        run(tmp_path)
        done = work(tmp_path)
        monkeypatch.setenv(tiny_stages.OFFSET, "2")
        run(tmp_path, from_stage="numbers", until="numbers")
        plan = make_plan(
            load_recipe(str(tmp_path / "tiny.yaml"), str(tmp_path / "here.yaml")),
            tmp_path / "runs",
        )
        assert [state(one) for one in plan.stages][:2] == [
            "done",
            "to run: input numbers was made again with other content (tiny/numbers)",
        ]
        run(tmp_path)
        slow = [f"slow {i}" for i in range(5)]
        assert work(tmp_path)[len(done) :] == ["numbers", "half", *slow, "page"]

    def test_the_same_content_keeps_what_reads_it(self, tmp_path: Path) -> None:
        run(tmp_path)
        done = work(tmp_path)
        run(tmp_path, from_stage="numbers", until="numbers")
        run(tmp_path)
        assert work(tmp_path)[len(done) :] == ["numbers"]


class TestFrom:
    @pytest.mark.parametrize("fails", ["half", "slow", "page"])
    def test_an_interrupted_one_is_finished_by_a_plain_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
    ) -> None:
        plan, _ = run(tmp_path)
        before, done = everything(plan), work(tmp_path)
        monkeypatch.setenv(tiny_stages.INTERRUPTED, fails)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, from_stage="half")
        monkeypatch.delenv(tiny_stages.INTERRUPTED)
        plan, _ = run(tmp_path)
        assert everything(plan) == before
        assert {"half", "slow 4", "page"} <= set(work(tmp_path)[len(done) :])
        assert not list((tmp_path / "runs").rglob("*.partial"))
        assert run(tmp_path)[1] == []

    def test_what_an_earlier_run_left_half_done_is_not_used(self, tmp_path: Path) -> None:
        plan, _ = run(tmp_path, until="half")
        partial = next(one.partial for one in make_whole(tmp_path).stages if "slow" in one.title)
        partial.mkdir()
        record = json.dumps({"key": 0, "value": 99}) + "\n"
        (partial / "records.jsonl").write_text(record)
        plan, _ = run(tmp_path, from_stage="slow")
        first = file_of(plan, "tiny/slow", "records.jsonl").read_text().splitlines()[0]
        assert {"key": 0, "value": 0}.items() <= json.loads(first).items()


def make_whole(tmp_path: Path) -> Plan:
    recipe = load_recipe(str(tmp_path / "tiny.yaml"), str(tmp_path / "here.yaml"))
    return make_plan(recipe, tmp_path / "runs")


class TestShrunk:
    RECIPE = """
name: tiny
sources: {data: {path: DATA}}
stages:
  numbers: {inputs: {source: data}}
  half: {}
"""

    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        folder = tmp_path / "data"
        folder.mkdir()
        for name in ("a.txt", "b.txt"):
            (folder / name).write_text(name)
        (tmp_path / "tiny.yaml").write_text(self.RECIPE.replace("DATA", str(folder)))
        run(tmp_path)
        return folder

    def test_a_file_that_is_gone_is_an_error(self, tmp_path: Path, data: Path) -> None:
        (data / "b.txt").unlink()
        said = f"source data: {data} no longer has b.txt, which tiny/numbers read before"
        with pytest.raises(InputError, match=said) as caught:
            run(tmp_path)
        assert "--from numbers" in str(caught.value)
        (data / "b.txt").write_text("b.txt")
        assert run(tmp_path)[1] == []

    def test_it_can_be_accepted(self, tmp_path: Path, data: Path) -> None:
        (data / "b.txt").unlink()
        done = work(tmp_path)
        run(tmp_path, from_stage="numbers")
        run(tmp_path)
        assert work(tmp_path)[len(done) :] == ["numbers", "half"]

    def test_a_new_file_and_another_folder_are_no_loss(self, tmp_path: Path, data: Path) -> None:
        (data / "c.txt").write_text("c")
        run(tmp_path)
        other = tmp_path / "other"
        other.mkdir()
        (other / "z.txt").write_text("z")
        run(tmp_path, f"sources.data.path={other}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_a_manifest_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    plan, _ = run(tmp_path)
    file_of(plan, "tiny/half", "manifest.json").chmod(0)
    with pytest.raises(StageError, match="manifest.json: cannot be read"):
        run(tmp_path)
