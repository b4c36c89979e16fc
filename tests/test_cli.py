"""The command line: exit codes, what is printed, and that its page is current."""

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

from pcl_reasoner import cli_docs, doctor, files, stages, terminal
from pcl_reasoner.cli import cli, main
from pcl_reasoner.stage import Counts, StageConfig, StageContext

ROOT = Path(files.PACKAGE).parent


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, stage in tiny_stages.TINY.items():
        monkeypatch.setitem(stages.STAGES, name, stage)
    monkeypatch.setenv("PCLR_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv(tiny_stages.TRACE, str(tmp_path / "trace"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    return tiny_stages.write(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> object:
    def call_(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        out, err = capsys.readouterr()
        return code, out, err

    return call_


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
        assert "source data: /absent: nothing there." in err

    def test_libraries_stay_offline_unless_there_is_something_to_fetch(
        self, call, tiny, tmp_path, monkeypatch
    ) -> None:
        call("run", *tiny)
        assert os.environ.pop("HF_HUB_OFFLINE") == "1"
        hub = "sources: {data: {hub: a/b, revision: c}}"
        text = (tiny_stages.RECIPE + hub).replace("{n: 8}", "{inputs: {source: data}}")
        (tmp_path / "tiny.yaml").write_text(text)
        monkeypatch.setattr("pcl_reasoner.sources.fetch", lambda *words: None)
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
        again = "to run: asked for with --from"
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
        assert re.search(r"^on \S+:\n  # .+\n  \S+", out, re.M)
        assert call("diff", "v15_opg", str(own))[:2] == (0, "no difference\n")
        rendered = yaml.safe_load(own.read_text())
        rendered["runner_config"]["epochs"] = 77
        own.write_text(yaml.safe_dump(rendered))
        code, out, _ = call("diff", "v15_opg", str(own))
        assert code == 0
        changed = [row for row in rows(out)[2:] if row != [""]]
        assert [(row[0], row[2]) for row in changed] == [("runner_config.epochs", "77")]


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
        assert "not there yet. Build it with: pclr-ms run " in err
        call("run", *tiny)
        opened: list[str] = []
        monkeypatch.setattr("webbrowser.open", opened.append)
        code, out, _ = call("report", *tiny, "--open")
        assert code == 0
        assert opened == [Path(out.strip()).as_uri()]
        assert Path(out.strip()).is_file()

    def test_wrong_words_are_exit_2(self, call, tiny) -> None:
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
        assert "small.yaml: is there already. Use --force" in err
        assert not mine.exists(), "nothing is copied when one is refused"
        assert call("cp", tiny[0], str(mine), "--force")[0] == 0
        code, _, err = call("cp", tiny[0], str(tmp_path), "--force")
        assert code == 2
        assert "is the file to copy itself" in err

    def test_unknown_name(self, call, tmp_path) -> None:
        assert call("cp", "no_such", str(tmp_path))[0] == 2


class WordsConfig(StageConfig):
    pass


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
    stage = stages.Stage(__name__, "WordsConfig", "words", {"policy": "policy"})
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


class TestTerminal:
    def test_headline_says_where_once(self, call, tiny, tmp_path) -> None:
        said = "title: LAPTOP, a small one"
        (tmp_path / "here.yaml").write_text(tiny_stages.LAUNCH.replace("title: this machine", said))
        assert call("status", *tiny)[1].startswith("LAPTOP: a small one\n")

    @pytest.mark.parametrize(
        ("seconds", "said"),
        [
            (0.04, "0.0 s"),
            (9.94, "9.9 s"),
            (9.96, "10 s"),
            (243, "4 min 3 s"),
            (4320, "1 h 12 min"),
        ],
    )
    def test_duration(self, seconds: float, said: str) -> None:
        assert terminal.duration(seconds) == said

    def test_pace_counts_from_where_the_stage_went_on(self) -> None:
        """At 1000 when it went on; 100 more in 10 s are 10/s, and 900 are left: 90 s."""
        pace = terminal.Pace(1000, 50.0, (5000, "problems"))
        assert pace.words(1000, 2000, "rows", now=50.0) == "1,000/2,000 rows"
        said = pace.words(1100, 2000, "rows", now=60.0)
        assert said == "1,100/2,000 rows, 10.0 rows/s, 1 min 30 s left"
        assert pace.words(1001, None, "steps", now=70.0) == "1,001 steps, 20 s each"

    def test_pace_begins_anew_with_what_is_counted(self) -> None:
        """2 problems/s at first; then 3 of 6 others in 10 s, not 3 after 20 in 20 s."""
        first = terminal._pace(None, 0, 0.0, (20, "problems"))
        assert terminal._pace(first, 20, 10.0, (20, "problems")) is first
        again = terminal._pace(first, 0, 10.0, (6, "problems"))
        said = again.words(3, 6, "problems", now=20.0)
        assert said == "3/6 problems, 0.3 problems/s, 10 s left"

    def test_long_stages_speak_once_a_minute(self, capsys, monkeypatch) -> None:
        now = [0.0]
        monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
        view = terminal.LogView()
        view._where = "[1/2] tiny/slow"
        for now[0] in (1.0, 30.0, 61.0, 62.0, 100.0, 122.0):
            view.update(now[0], 200, "rows")
        assert capsys.readouterr().out.splitlines() == [
            "[1/2] tiny/slow: 61/200 rows, 1.0 rows/s, 2 min 19 s left",
            "[1/2] tiny/slow: 122/200 rows, 1.0 rows/s, 1 min 18 s left",
        ]

    def test_live_view_on_a_terminal(self, tiny, tmp_path) -> None:
        """A run in a pseudo-terminal: the stages' lines stay, the bar goes."""
        import pty

        seen: list[bytes] = []

        def read(descriptor: int) -> bytes:
            data = os.read(descriptor, 65536)
            seen.append(data)
            return data

        program = [sys.executable, str(Path(tiny_stages.__file__)), "run", *tiny]
        os.environ["PYTHONPATH"] = str(ROOT)
        status = pty.spawn(program, read)
        assert os.waitstatus_to_exitcode(status) == 0
        text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", b"".join(seen)).decode()
        assert "[2/4] tiny/half: 4 of 8 numbers kept" in text
        assert "warning: tiny/half: 1 multiples of five" in text
        assert "report.html" in re.sub(r"\s", "", text)


class TestDoctor:
    @pytest.mark.parametrize(
        ("version", "wanted", "fits"),
        [
            ("2.13.0+cpu", ">=2.4", True),
            ("2.3.9", ">=2.4", False),
            ("1.26.4", ">=1.26,<2", True),
            ("2.0.0", ">=1.26,<2", False),
            ("2.7.2", "==2.7.2", True),
            ("2.7.10", "==2.7.1", False),
            ("19", "==19.0.0", True),
        ],
    )
    def test_bounds(self, version: str, wanted: str, fits: bool) -> None:
        assert doctor.satisfies(version, wanted) is fits

    def test_bounds_are_setup_cfgs(self) -> None:
        text = (ROOT / "setup.cfg").read_text()
        wanted = dict(re.findall(r"^    ([\w-]+)([=><][^\s]+)$", text, re.M))
        assert {name: wanted[name] for name in doctor.LAPTOP} == doctor.LAPTOP

    def test_what_goes_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def found(mindspore: str, mindformers: str, cann: str | None) -> dict[str, bool]:
            versions = {"mindspore": mindspore, "mindformers": mindformers}
            monkeypatch.setattr(doctor, "_installed", lambda name: versions.get(name))
            monkeypatch.setattr(doctor, "cann_version", lambda environment: cann)
            monkeypatch.setattr(doctor, "driver_version", lambda: None)
            return {check.name: check.ok for check in doctor.checks()}

        pair = "MindSpore with MindFormers"
        assert found("2.7.2", "1.8.0", "8.5.0")[pair]
        assert found("2.7.2", "1.8.0", "8.5.0")["CANN"]
        assert not found("2.7.2", "1.7.0", None)[pair]
        assert found("2.7.1", "1.7.0", "8.3.RC1")["CANN"]
        assert not found("2.7.1", "1.7.0", "8.5.0")["CANN"]
        assert found("2.6.0", "1.5.0", "8.1.RC1")[pair]
        assert not found("2.5.0", "1.5.0", None)[pair]

    def test_cann_from_its_own_files(self, tmp_path: Path) -> None:
        environment = {"ASCEND_HOME_PATH": str(tmp_path)}
        assert doctor.cann_version(environment) is None
        old = "# version: 1.0\nruntime_running_version=[7.6.0.1.220:8.3.RC1]\n"
        (tmp_path / "version.cfg").write_text(old)
        assert doctor.cann_version(environment) == "8.3.RC1"
        info = tmp_path / "aarch64-linux" / "ascend_toolkit_install.info"
        info.parent.mkdir()
        info.write_text("package_name=Ascend-cann-toolkit\nversion=8.5.0\narch=aarch64\n")
        assert doctor.cann_version(environment) == "8.5.0"

    def test_exit_code_says_whether_the_laptop_path_runs(self, call, monkeypatch) -> None:
        monkeypatch.setattr(doctor, "LAPTOP", {"mindspore": "==2.7.2", "mindformers": "==1.8.0"})
        monkeypatch.setattr(
            doctor, "_installed", {"mindspore": "2.7.2", "mindformers": "1.8.0"}.get
        )
        code, out, _ = call("doctor")
        assert code == (0 if sys.version_info[:2] == (3, 11) else 1)
        monkeypatch.setattr(doctor, "_installed", {"mindspore": "2.7.2"}.get)
        code, out, _ = call("doctor")
        assert code == 1
        assert "pip install 'mindformers==1.8.0'" in out
        assert "the laptop path cannot run: mindformers, MindSpore with MindFormers" in out


class TestPage:
    def test_is_current(self) -> None:
        assert cli_docs.FILE.read_text(encoding="utf-8") == cli_docs.document(), (
            "run: python -m pcl_reasoner.cli_docs"
        )

    def test_every_command_has_help_with_an_example_that_parses(self, capsys) -> None:
        assert main(["--help"]) == 0
        listed = capsys.readouterr().out
        for name, command in cli.commands.items():
            assert f"  {name} " in listed
            assert command.help
            examples = re.findall(r"^ +pclr-ms (.*)$", command.epilog or "", re.M)
            assert examples, name
            for example in examples:
                first, *rest = example.split()
                assert first == name
                command.make_context(first, rest)

    def test_every_file_it_names_is_there(self) -> None:
        text = cli_docs.document()
        named = set(re.findall(r"\b(v\w+_\w+|laptop\.yaml|atlas_\w+)\b", text))
        assert {"v15_opg", "laptop.yaml"} <= named
        shipped = {
            path.stem
            for folder in ("recipes", "launch")
            for path in files.shipped(folder).glob("*.yaml")
        }
        assert {name.removesuffix(".yaml") for name in named} <= shipped
        for module in re.findall(r"python -m ([\w.]+)", text):
            assert (ROOT / Path(*module.split("."))).with_suffix(".py").is_file()


def test_ls_names_every_shipped_file_with_its_title(call) -> None:
    code, out, _ = call("ls")
    assert code == 0
    for folder in ("recipes", "launch"):
        for path in files.shipped(folder).glob("*.yaml"):
            title = yaml.safe_load(path.read_text())["title"]
            assert title in out
            assert path.stem in out
    assert json.dumps(rows(out)[0]) == '["kind", "name", "title"]'
