"""Runs: killed, resumed, refused, on full and read-only disks; each with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny_stages
import yaml
from artifact_helpers import verify
from runner_helpers import Notes, payload, run, work

from pcl_reasoner.core import artifact, files
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.runner import runner
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe

PROGRAM = str(Path(tiny_stages.__file__))

pytestmark = pytest.mark.usefixtures("tiny")


def start(tmp_path: Path, *words: str, seconds: str) -> subprocess.Popen[str]:
    """``pclr-ms run`` with the tiny stages, in a process of its own."""
    command = [sys.executable, PROGRAM, "run", str(tmp_path / "tiny.yaml")]
    command += ["--launch", str(tmp_path / "here.yaml"), "--runs", str(tmp_path / "runs"), *words]
    root = str(Path(runner.__file__).parents[2])
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": root, tiny_stages.SECONDS: seconds},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(tmp_path: Path, word: str) -> None:
    """Wait until the trace has a line."""
    deadline = time.monotonic() + 30
    while not ((tmp_path / "trace").exists() and word in work(tmp_path)):
        assert time.monotonic() < deadline, f"{word!r} never came"
        time.sleep(0.01)


class TestRun:
    def test_counts_by_hand(self, tmp_path: Path) -> None:
        """1 … 8: 2 4 6 8 are even, 5 is refused, 1 3 7 are odd."""
        plan, seen = run(tmp_path)
        half = next(one for one in plan.stages if one.title == "tiny/half")
        assert (half.folder / "even.json").read_text() == "[2, 4, 6, 8]"
        manifest = artifact.read_manifest(half.folder)
        assert manifest is not None
        assert manifest["counts"] == {
            "unit": "numbers",
            "read": 8,
            "kept": 4,
            "dropped": {"odd": 3, "malformed_five": 1},
            "info": {},
        }
        apart = json.loads((half.folder / "quarantined.jsonl").read_text())
        expected = {"file": "numbers.json", "row": 5, "reason": "malformed_five", "raw": "5"}
        assert apart == expected
        assert manifest["warnings"] == ["1 multiples of five"]
        assert manifest["fingerprint"] == half.fingerprint == artifact.fingerprint(half.identity)
        assert "warned tiny/half: 1 multiples of five" in seen
        assert seen.index("finished numbers 8/8") < seen.index("started half")

    def test_what_is_done_is_not_done_again(self, tmp_path: Path) -> None:
        run(tmp_path)
        before = work(tmp_path)
        _, seen = run(tmp_path)
        assert (work(tmp_path), seen) == (before, [])
        _, seen = run(tmp_path, "half.rate=0.25")
        assert seen[0] == "skipped numbers"
        added = work(tmp_path)[len(before) :]
        assert added == ["half", *(f"slow {key}" for key in range(5)), "page"]

    def test_until_stops_there(self, tmp_path: Path) -> None:
        run(tmp_path, until="half")
        assert work(tmp_path) == ["numbers", "half"]

    def test_from_runs_that_stage_and_all_after_it_again(self, tmp_path: Path) -> None:
        plan, _ = run(tmp_path)
        first = {one.title: payload(one.folder) for one in plan.stages}
        before = work(tmp_path)
        plan, seen = run(tmp_path, from_stage="half")
        assert seen[0] == "skipped numbers"
        assert work(tmp_path)[len(before) :][0] == "half"
        assert work(tmp_path)[-1] == "page"
        assert {one.title: payload(one.folder) for one in plan.stages} == first
        with pytest.raises(InputError, match="not one of the stages to run. Did you mean 'half'"):
            run(tmp_path, from_stage="hlf")

    def test_two_runs_write_the_same_bytes(self, tmp_path: Path) -> None:
        first, _ = run(tmp_path, runs=tmp_path / "one")
        second, _ = run(tmp_path, runs=tmp_path / "two")
        assert [payload(one.folder) for one in first.stages] == [
            payload(one.folder) for one in second.stages
        ]

    def test_a_stage_that_loses_records_is_not_committed(self, tmp_path: Path) -> None:
        with pytest.raises(StageError, match="read 9 numbers but accounts for 8"):
            run(tmp_path, "half.fault=counts")
        assert not any("half" in path.name for path in (tmp_path / "runs").rglob("manifest.json"))

    def test_too_many_malformed_records_stop_the_run(self, tmp_path: Path) -> None:
        """1 of 8 is 12.5 %."""
        run(tmp_path, "half.max_malformed=0.125", until="half")
        with pytest.raises(StageError) as caught:
            run(tmp_path, "half.max_malformed=0.12", until="half")
        said = str(caught.value)
        assert "1 of 8 numbers are malformed (12.5%), the limit is 12.0%" in said
        apart = Path(said.split("See ")[1].split(",")[0])
        assert json.loads(apart.read_text())["reason"] == "malformed_five"

    def test_a_failing_stage_is_named_and_what_was_done_stays(self, tmp_path: Path) -> None:
        with pytest.raises(StageError, match="^stage tiny/half: the moon is full"):
            run(tmp_path, "half.fault=stage")
        with pytest.raises(ValueError, match="seven") as caught:
            run(tmp_path, "half.fault=value")
        assert "stage tiny/half" in caught.value.__notes__[0]
        assert work(tmp_path) == ["numbers", "half", "half"]

    def test_all_missing_sources_before_anything_runs(self, tmp_path: Path) -> None:
        two = """
name: tiny
sources: {a: {path: /absent/a}, b: {path: /absent/b}}
stages:
  numbers: {}
  one: {stage: numbers, inputs: {source: a}}
  two: {stage: numbers, inputs: {source: b}}
"""
        (tmp_path / "tiny.yaml").write_text(two)
        with pytest.raises(InputError, match="(?s)2 problems.*/absent/a.*/absent/b"):
            run(tmp_path)
        assert not (tmp_path / "trace").exists()

    def test_all_missing_keys_before_anything_runs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those alone that the stages to run need."""
        policy, judge = "http://a:8000/v1", "https://judge/v1"
        launch = yaml.safe_load((files.PACKAGE.parent / "launch" / "laptop.yaml").read_text())
        launch["placement"] |= {
            "server_urls": [f"{policy}/"],
            "judge_urls": [judge],
            "api_keys": {policy: "KEY_A", judge: "KEY_J"},
        }
        launch["hashed"] |= {"sample": {"engine": "server"}, "evaluate": {"engine": "server"}}
        (tmp_path / "keys.yaml").write_text(yaml.safe_dump(launch))

        def said(*overrides: str) -> str:
            recipe = load_recipe("v15_opg", str(tmp_path / "keys.yaml"), overrides=overrides)
            with pytest.raises(InputError) as caught:
                runner.run(make_plan(recipe, tmp_path / "runs"), Notes())
            return str(caught.value)

        both = said("grade.method=judge")
        assert "2 problems" in both
        assert f"{policy} needs a key, but KEY_A is not set: export" in both
        assert f"{judge} needs a key, but KEY_J is not set" in both
        assert "KEY_J" not in said("grade.method=rule")
        monkeypatch.setenv("KEY_A", " \r\n")
        assert "KEY_A" in said("grade.method=rule")
        monkeypatch.setenv("KEY_A", "a")
        assert "KEY_A" not in said("grade.method=judge")
        assert not (tmp_path / "runs").exists()
        # Stages before the first one that asks need none.
        monkeypatch.delenv("KEY_A")
        monkeypatch.setattr(runner, "locked", lambda folder: pytest.fail("it begins"))
        recipe = load_recipe("v15_opg", str(tmp_path / "keys.yaml"))
        with pytest.raises(pytest.fail.Exception, match="it begins"):
            runner.run(make_plan(recipe, tmp_path / "runs", "convert"), Notes())


class TestCutOff:
    def cut_off(self, tmp_path: Path, how: signal.Signals) -> tuple[int, str, str]:
        """Start a run whose records take a while each, and end it in the third."""
        process = start(tmp_path, "slow.n=6", seconds="0.3")
        wait_for(tmp_path, "slow 2")
        process.send_signal(how)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    def the_rest(self, tmp_path: Path) -> None:
        """Run it to the end: no work is done twice, and the bytes are those of a whole run."""
        plan, seen = run(tmp_path, "slow.n=6")
        assert seen[:3] == ["skipped numbers", "skipped half", "started slow"]
        assert sorted(work(tmp_path)) == sorted(
            ["numbers", "half", *(f"slow {key}" for key in range(6)), "page"]
        )
        (tmp_path / "trace").unlink()
        whole, _ = run(tmp_path, "slow.n=6", runs=tmp_path / "whole")
        for one, other in zip(plan.stages, whole.stages, strict=True):
            assert payload(one.folder) == payload(other.folder)
            assert not one.partial.exists()

    def test_killed_in_the_middle_of_a_line(self, tmp_path: Path) -> None:
        code, _, _ = self.cut_off(tmp_path, signal.SIGKILL)
        assert code == -signal.SIGKILL
        (partial,) = (tmp_path / "runs" / "tiny").glob("slow-*")
        assert partial.name.endswith(".partial")
        assert not (partial / "manifest.json").exists()
        with (partial / "records.jsonl").open("a") as handle:
            handle.write('{"key": 3, "va')
        self.the_rest(tmp_path)

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
    def test_interrupted(self, tmp_path: Path, how: signal.Signals) -> None:
        code, _, err = self.cut_off(tmp_path, how)
        assert code == 130
        assert err.strip() == "interrupted; run the same command again to resume"
        self.the_rest(tmp_path)

    def test_a_stage_that_cannot_go_on_starts_anew(self, tmp_path: Path) -> None:
        plan = make_plan(
            load_recipe(str(tmp_path / "tiny.yaml"), str(tmp_path / "here.yaml")), tmp_path / "runs"
        )
        half = next(one for one in plan.stages if one.title == "tiny/half")
        half.partial.mkdir(parents=True)
        (half.partial / "half_written.json").write_text("[2, 4")
        run(tmp_path)
        assert set(payload(half.folder)) == {"even.json", "quarantined.jsonl"}

    def test_a_corrupted_manifest_is_made_anew(self, tmp_path: Path) -> None:
        plan, _ = run(tmp_path)
        half = next(one for one in plan.stages if one.title == "tiny/half")
        (half.folder / "manifest.json").write_bytes(b'{"counts": \x00')
        _, seen = run(tmp_path)
        assert [word for word in seen if word.startswith("finished")] == ["finished half 4/8"]
        assert verify(half.folder) == []


class TestLock:
    def test_a_second_runner_says_who_holds_the_folder(self, tmp_path: Path) -> None:
        process = start(tmp_path, seconds="60")
        try:
            wait_for(tmp_path, "slow 0")
            with pytest.raises(StageError, match=f"in use by process {process.pid} on .* since"):
                run(tmp_path)
        finally:
            process.kill()
            process.communicate()
        # The lock went with the process, however it ended.
        run(tmp_path, runs=tmp_path / "runs", until="half")
        with runner.locked(tmp_path / "runs" / "tiny"):
            pass

    def test_another_recipe_has_a_lock_of_its_own(self, tmp_path: Path) -> None:
        with runner.locked(tmp_path / "runs" / "other"):
            run(tmp_path)


@contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own; skips where mounting is not allowed."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class TestDisk:
    def test_full(self, tmp_path: Path) -> None:
        with tmpfs(tmp_path / "disk", "size=4m") as disk:
            with pytest.raises(StageError) as caught:
                run(tmp_path, "half.fault=disk", runs=disk / "runs")
            said = str(caught.value)
            assert said.startswith("stage tiny/half: ")
            assert "the disk is full. Free space and run again; finished stages are kept." in said
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            _, seen = run(tmp_path, "half.fault=disk", runs=disk / "runs")
            assert seen[:2] == ["skipped numbers", "started half"]

    def test_full_when_a_library_says_it_in_its_own_words(self, tmp_path: Path) -> None:
        full = pytest.raises(StageError, match="stage tiny/half: .*the disk is full")
        with tmpfs(tmp_path / "disk", "size=1m") as disk, full:
            run(tmp_path, "half.fault=library", runs=disk / "runs")

    def test_read_only(self, tmp_path: Path) -> None:
        with tmpfs(tmp_path / "disk", "size=1m") as disk:
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            with pytest.raises(StageError) as caught:
                run(tmp_path, runs=disk / "runs")
        assert str(disk / "runs" / "tiny") in str(caught.value)
        assert "cannot be written (Read-only file system)" in str(caught.value)
        assert "--runs" in str(caught.value)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_no_permission(self, tmp_path: Path) -> None:
        (tmp_path / "runs").mkdir(mode=0o500)
        with pytest.raises(StageError, match=r"cannot be written \(Permission denied\)"):
            run(tmp_path)


def test_manifest_says_where_it_comes_from(tmp_path: Path) -> None:
    plan, _ = run(tmp_path, until="half")
    manifest = artifact.read_manifest(plan.stages[-1].folder)
    assert manifest is not None
    assert (manifest["recipe"], manifest["name"], manifest["stage"]) == ("tiny", "half", "half")
    assert manifest["origins"] == {"numbers": "tiny/numbers"}
    assert manifest["identity"]["config"]["rate"] == 0.5
    assert manifest["versions"]["pclr-ms"]
    assert set(manifest["files"]) == {"even.json", "quarantined.jsonl"}
