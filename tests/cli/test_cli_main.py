"""The command line: exit codes and what is printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import tiny_stages
import yaml

from pcl_reasoner import stages
from pcl_reasoner.core import files
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.pack.config import PackConfig

ROOT = Path(files.PACKAGE).parent


@pytest.fixture(autouse=True)
def _tiny(tiny: list[str]) -> None:
    """Its stages are known to every test here, and runs go where nothing else is."""


def rows(text: str) -> list[list[str]]:
    """Lines of a table, cut at two spaces."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


class TestRun:
    def test_a_line_a_stage_then_funnel_warnings_report_and_next(self, call, tiny) -> None:
        code, out, err = call("run", *tiny)
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[0] == "LAPTOP: this machine"
        assert lines[1].startswith("[1/4] tiny/numbers: 8 of 8 numbers kept, ")
        assert lines[2].startswith("[2/4] tiny/half: 4 of 8 numbers kept, ")
        table = rows(out)
        assert ["stage", "unit", "read", "kept", "dropped"] in table
        assert ["tiny/half", "numbers", "8", "4", "malformed_five 1, odd 3"] in table
        assert "warning: tiny/half: 1 multiples of five" in lines
        (report,) = [line for line in lines if line.startswith("report: ")]
        assert Path(report.removeprefix("report: ")).read_text().startswith("Numbers to even")
        assert lines[-1].startswith("next: pclr-ms report ")

    def test_what_it_says_to_do_next_can_be_done(self, call, tiny) -> None:
        _, out, _ = call("run", *tiny, "--until", "half", "--seed", "3", "slow.n=2")
        command = out.splitlines()[-1].removeprefix("next: pclr-ms ").split()
        assert command[0] == "run"
        code, out, _ = call(*command)
        assert code == 0
        assert "[1/4] tiny/numbers: done already" in out
        assert "[3/4] tiny/slow: 2 of 2 records kept" in out
        code, out, _ = call(*out.splitlines()[-1].removeprefix("next: pclr-ms ").split()[:-1])
        assert code == 0
        assert out.strip().endswith("report.html")

    def test_early_stages_run_although_a_later_one_is_wrong(self, call, tiny, tmp_path) -> None:
        text = tiny_stages.RECIPE.replace("report: {}", "train: {loss: opg}")
        assert text != tiny_stages.RECIPE
        (tmp_path / "tiny.yaml").write_text(text)
        assert call("run", *tiny)[0] == 2
        code, out, _ = call("run", *tiny, "--until", "half")
        assert code == 0
        assert "[2/2] tiny/half: 4 of 8 numbers kept" in out

    def test_a_recipe_without_profiles_runs_with_any_launch_file(
        self, call, tiny, tmp_path
    ) -> None:
        (tmp_path / "box.yaml").write_text(tiny_stages.LAUNCH.replace("paper", "big"))
        launch = ["--launch", str(tmp_path / "box.yaml")]
        code, out, _ = call("run", tiny[0], *launch, "--until", "half")
        assert code == 0
        command = out.splitlines()[-1].removeprefix("next: pclr-ms ").split()
        assert "--profile" not in command
        assert call(*command)[0] == 0

    def test_nothing_to_do(self, call, tiny, tmp_path) -> None:
        call("run", *tiny)
        before = (tmp_path / "trace").read_text()
        code, out, _ = call("run", *tiny)
        assert code == 0
        assert out.splitlines()[:2] == [
            "LAPTOP: this machine",
            "nothing to do: every stage is done",
        ]
        assert "report.html" in out
        assert (tmp_path / "trace").read_text() == before

    def test_a_failing_stage_is_exit_1_without_traceback(self, call, tiny) -> None:
        code, _, err = call("run", *tiny, "half.fault=stage")
        assert code == 1
        assert err == "error: stage tiny/half: the moon is full. Wait for it to wane.\n"

    def test_a_fault_of_ours_is_exit_1_with_traceback_and_stage(self, call, tiny) -> None:
        code, _, err = call("run", *tiny, "half.fault=value")
        assert code == 1
        assert err.startswith("unexpected error\nTraceback")
        assert "ValueError: seven\nThis happened in stage tiny/half" in err

    def test_missing_sources_are_exit_2(self, call, tiny, tmp_path) -> None:
        text = tiny_stages.RECIPE + "sources: {data: {path: /absent}}"
        (tmp_path / "tiny.yaml").write_text(text.replace("{n: 8}", "{inputs: {source: data}}"))
        code, _, err = call("run", *tiny)
        assert code == 2
        assert "source data: /absent: no such files." in err

    def test_libraries_stay_offline_unless_there_is_something_to_fetch(
        self, call, tiny, tmp_path, monkeypatch
    ) -> None:
        call("run", *tiny)
        assert os.environ.pop("HF_HUB_OFFLINE") == "1"
        hub = "sources: {data: {hub: a/b, revision: c}}"
        text = (tiny_stages.RECIPE + hub).replace("{n: 8}", "{inputs: {source: data}}")
        (tmp_path / "tiny.yaml").write_text(text)
        monkeypatch.setattr("pcl_reasoner.runner.sources.fetch", lambda *words: None)
        call("run", *tiny)
        assert "HF_HUB_OFFLINE" not in os.environ

    def test_through_a_real_process(self, tiny, tmp_path) -> None:
        program = [sys.executable, str(Path(tiny_stages.__file__))]
        answer = subprocess.run(
            [*program, "run", *tiny, "half.rat=1"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert answer.returncode == 2
        assert "half.rat=1: stage half: rat: unknown key. Did you mean 'rate'?" in answer.stderr
        assert answer.stdout == ""


class TestDryRun:
    def test_says_everything_and_runs_nothing(self, call, tiny, tmp_path) -> None:
        text = tiny_stages.RECIPE + "sources: {a: {path: /absent/a}, b: {path: /absent/b}}"
        text = text.replace("{n: 8}", "{n: 8, inputs: {source: [a, b]}}")
        (tmp_path / "tiny.yaml").write_text(text)
        code, out, _ = call("run", *tiny, "--dry-run")
        assert code == 0
        assert out.startswith("LAPTOP: this machine\n")
        stage_lines = re.findall(r"^\[\d/4\] tiny/(\w+)  [0-9a-f]{8}  to run: never", out, re.M)
        assert stage_lines == ["numbers", "half", "slow", "report"]
        assert "missing: source a: /absent/a" in out
        assert "missing: source b: /absent/b" in out
        resolved = tmp_path / "runs" / "tiny" / "dry_run" / "recipe.resolved.yaml"
        assert yaml.safe_load(resolved.read_text())["stages"]["numbers"]["n"] == 8
        assert not (tmp_path / "trace").exists()

    def test_says_what_from_runs_again(self, call, tiny) -> None:
        call("run", *tiny)
        _, out, _ = call("run", *tiny, "--dry-run", "--from", "slow")
        states = re.findall(r"^\[\d/4\] tiny/(\w+)  [0-9a-f]{8}  (.*)$", out, re.M)
        again = "to run: requested with --from"
        expected = [("numbers", "done"), ("half", "done"), ("slow", again), ("report", again)]
        assert states == expected

    def test_shipped_recipe_renders_every_training(self, call, tmp_path) -> None:
        """What is written is what diff compares with: no difference, and one key changed is one."""
        code, out, _ = call("run", "v15_opg", "--dry-run")
        assert code == 0
        folder = tmp_path / "runs" / "v15_opg" / "dry_run"
        own, first = folder / "mindformers.train.yaml", folder / "mindformers.v1_sft.train.yaml"
        assert f"written: {own}" in out.splitlines()
        assert first.is_file()
        assert re.search(r"^  on \S+:\n    # .+\n    \S+", out, re.M)
        assert call("diff", "v15_opg", str(own))[:2] == (0, "no difference\n")
        rendered = yaml.safe_load(own.read_text())
        rendered["runner_config"]["epochs"] = 77
        own.write_text(yaml.safe_dump(rendered))
        code, out, _ = call("diff", "v15_opg", str(own))
        assert code == 0
        changed = [row for row in rows(out)[2:] if row != [""]]
        assert [(row[0], row[2]) for row in changed] == [("runner_config.epochs", "77")]

    def test_diff_tells_meaning_from_notation_and_lists_each_side_apart(
        self, call, tmp_path
    ) -> None:
        call("run", "v1_sft", "--dry-run")
        theirs = tmp_path / "runs" / "v1_sft" / "dry_run" / "mindformers.train.yaml"
        rendered = yaml.safe_load(theirs.read_text())
        rendered["output_dir"] = f"./{rendered['output_dir']}/"
        rendered["optimizer"]["learning_rate"] = f"{rendered['optimizer']['learning_rate']:.0e}"
        rendered["mine"] = rendered.pop("run_mode")
        rendered["runner_wrapper"]["max_grad_norm"] = 2.0
        theirs.write_text(yaml.safe_dump(rendered))
        code, out, _ = call("diff", "v1_sft", str(theirs))
        assert code == 0
        tables = [table.splitlines() for table in out.strip().split("\n\n")]
        assert [rows(table[0])[0][0] for table in tables] == [
            "different in meaning",
            "only in v1_sft",
            f"only in {theirs}",
        ]
        found = [[rows(line)[0] for line in table[2:]] for table in tables]
        assert found == [
            [["runner_wrapper.max_grad_norm", "1.0", "2.0"]],
            [["run_mode", "finetune"]],
            [["mine", "finetune"]],
        ]


class TestLook:
    def test_validate(self, call, tiny, tmp_path) -> None:
        assert call("validate", *tiny)[:2] == (0, "ok: 4 stages\n")
        (tmp_path / "tiny.yaml").write_text(tiny_stages.RECIPE.replace("half: {}", "hlf: {a: 1}"))
        code, out, err = call("validate", *tiny, "slow.m=1")
        assert (code, out) == (2, "")
        assert f"{tmp_path / 'tiny.yaml'}: stages.hlf: no such stage 'hlf'. Did you" in err
        assert "override slow.m=1: stage slow: m: unknown key." in err

    def test_validate_reads_the_recipes_that_are_read(self, call, tiny, tmp_path) -> None:
        text = "name: two\nsources: {numbers: {recipe: tiny.yaml, stage: nubers}}\n"
        (tmp_path / "two.yaml").write_text(text + "stages: {half: {}}\n")
        code, _, err = call("validate", str(tmp_path / "two.yaml"), *tiny[1:])
        assert code == 2
        assert "has no stage 'nubers'. Did you mean 'numbers'?" in err

    def test_status(self, call, tiny) -> None:
        call("run", *tiny, "--until", "half")
        code, out, _ = call("status", *tiny, "half.rate=0.75")
        assert code == 0
        states = {row[0]: row[-1] for row in rows(out)}
        assert states["tiny/numbers"] == "done"
        assert states["tiny/half"] == "to run: rate is 0.75, was 0.5"
        assert states["tiny/slow"] == "to run: never run with these settings"
        assert "1 of 4 stages done" in out

    def test_show(self, call, tiny) -> None:
        code, out, _ = call("show", *tiny, "--seed", "7", "numbers.n=2")
        assert code == 0
        shown = yaml.safe_load(out)
        assert shown["seed"] == 7
        assert shown["stages"]["numbers"] == {
            "stage": "numbers",
            "inputs": {},
            "n": 2,
            "seed": 7,
            "native": {},
        }

    def test_diff(self, call, tiny, tmp_path) -> None:
        assert call("diff", tiny[0], *tiny)[:2] == (0, "no difference\n")
        other = tmp_path / "other.yaml"
        other.write_text(tiny_stages.RECIPE.replace("half: {}", "half: {rate: 0.25}"))
        code, out, _ = call("diff", tiny[0], str(other), *tiny[1:])
        assert code == 0
        assert ["stages.half.rate", "0.5", "0.25"] in rows(out)
        assert len([row for row in rows(out) if row[0].startswith("stages.")]) == 1

    def test_report(self, call, tiny, monkeypatch) -> None:
        code, out, err = call("report", *tiny)
        assert (code, out) == (1, "")
        assert "does not exist yet. Build it with: pclr-ms run " in err
        call("run", *tiny)
        opened: list[str] = []
        monkeypatch.setattr("webbrowser.open", opened.append)
        code, out, _ = call("report", *tiny, "--open")
        assert code == 0
        assert opened == [Path(out.strip()).as_uri()]
        assert Path(out.strip()).is_file()

    def test_incorrect_words_are_exit_2(self, call, tiny) -> None:
        assert call("rnu")[0] == 2
        assert call("run")[0] == 2
        assert call("run", *tiny, "--seed", "-1")[0] == 2
        assert call("run", *tiny, "--until", "hlf")[0] == 2
        assert call("run", *tiny, "--from", "hlf")[0] == 2
        assert call("preview", *tiny, "--rows", "a")[0] == 2


class TestCopy:
    def test_a_recipe_with_its_profiles(self, call, tiny, tmp_path) -> None:
        (tmp_path / "profiles").mkdir()
        (tmp_path / "profiles" / "small.yaml").write_text("seed: 3")
        with (tmp_path / "tiny.yaml").open("a") as handle:
            handle.write("profiles: {small: profiles/small.yaml}\n")
        mine = tmp_path / "mine" / "my.yaml"
        code, out, _ = call("cp", tiny[0], str(mine))
        assert code == 0
        assert len(out.splitlines()) == 2
        assert call("show", str(mine), *tiny[1:], "--profile", "small")[1].count("seed: 3\n") == 2
        (tmp_path / "mine" / "my.yaml").unlink()
        code, out, err = call("cp", tiny[0], str(mine))
        assert (code, out) == (2, "")
        assert "small.yaml: already exists. Use --force" in err
        assert not mine.exists(), "nothing is copied when one is refused"
        assert call("cp", tiny[0], str(mine), "--force")[0] == 0
        code, _, err = call("cp", tiny[0], str(tmp_path), "--force")
        assert code == 2
        assert "is the source file itself" in err

    def test_unknown_name(self, call, tmp_path) -> None:
        assert call("cp", "no_such", str(tmp_path))[0] == 2
        for typed, meant in (("v15opg", "v15_opg.yaml"), ("lapptop", "laptop.yaml")):
            code, _, err = call("cp", typed, str(tmp_path))
            assert code == 2
            assert f"no shipped recipe or launch file has that name. Did you mean {meant!r}?" in err


class WordsConfig(PackConfig):
    seq_length: int = 8


def words(
    config: WordsConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """A packed row by hand: two segments, their prompts, and padding."""
    from datasets import Dataset

    row = {
        "input_ids": [[1, 2, 3, 4, 1, 5, 0, 0]],
        "labels": [[-100, -100, 3, 4, -100, 5, -100, -100]],
        "segment_ids": [[0, 0, 0, 0, 1, 1, 2, 2]],
        "actual_seq_len": [[4, 6]],
        "rewards": [[1.0, 0.0]],
    }
    Dataset.from_dict(row).save_to_disk(output)
    return Counts(unit="rows", read=1, kept=1)


def test_preview_shows_prompt_trained_segments_and_rewards(
    call, tiny, tmp_path, monkeypatch
) -> None:
    from tokenizers import Tokenizer, models

    names = ["end", "how", "many", "seven", "stop", "eight"]
    policy = tmp_path / "policy"
    policy.mkdir()
    vocabulary = {name: index for index, name in enumerate(names)}
    Tokenizer(models.WordLevel(vocabulary, "end")).save(str(policy / "tokenizer.json"))
    stage = stages.Stage(__name__, "words", {"policy": "policy"})
    monkeypatch.setitem(stages.STAGES, "pack", stage)
    text = f"name: tiny\nsources: {{policy: {{path: {policy}}}}}\nstages: {{pack: {{}}}}\n"
    (tmp_path / "tiny.yaml").write_text(text)
    code, _, err = call("preview", *tiny)
    assert code == 1
    assert "not done yet. Run it with: pclr-ms run" in err
    assert call("run", *tiny)[0] == 0
    code, out, err = call("preview", *tiny)
    assert (code, err) == (0, "")
    plain = re.sub(r"\s+", " ", out)
    assert "row 0 ── segment 0, reward 1 ── [prompt]how many[trained]seven stop" in plain
    assert "── segment 1, reward 0 ── [prompt]how[trained]eight" in plain
    assert "── padding ──" in plain
    assert call("preview", *tiny, "--rows", "5")[0] == 2


def test_ls_names_every_shipped_file_with_its_title(call) -> None:
    code, out, _ = call("ls")
    assert code == 0
    for folder in ("recipes", "launch"):
        for path in files.shipped(folder).glob("*.yaml"):
            title = yaml.safe_load(path.read_text())["title"]
            assert title in out
            assert path.stem in out
    assert json.dumps(rows(out)[0]) == '["kind", "name", "title"]'


def test_eval_names_a_wrong_key_of_the_launch_file(call, tmp_path) -> None:
    text = files.find("laptop", "launch").read_text()
    (tmp_path / "box.yaml").write_text(text.replace("evaluate: {engine:", "evaluate: {engin:"))
    code, _, err = call("eval", "v15_opg", "--launch", str(tmp_path / "box.yaml"))
    assert code == 2
    assert "box.yaml: hashed.evaluate: engin: unknown key. Did you mean 'engine'?" in err
