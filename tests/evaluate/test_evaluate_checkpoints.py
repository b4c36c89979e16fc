"""Checkpoints by one command: real weights, the local sampler, nothing answered twice."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from pcl_reasoner.cli.main import main
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.evaluate.checkpoints import benchmark_files, model_of, with_settings
from pcl_reasoner.evaluate.stage import EvaluateConfig
from pcl_reasoner.synthetic.base_model import write_model_folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("first", "second")):
        (folder / name).mkdir()
        texts = ["3 + 5? 2 + 2?"]
        write_model_folder(folder / name, texts, vocab_size=270, hidden=32, layers=1, seed=seed)
    return folder


def test_two_checkpoints_are_answered_once_and_compared(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [{"id": str(i), "problem": f"{i} + 5?", "answer": i + 5} for i in range(3)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["eval", str(models / "first"), f"new={models / 'second'}"]
    words += ["--benchmark", "sums.jsonl", "-n", "2"]
    words += ["--set", "max_new_tokens=4", "--set", "max_model_len=64"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "first" in shown and "new" in shown and "3 x 2" in shown
    scores = json.loads((tmp_path / "evaluated" / "scores.json").read_text())
    first, second = scores["scores"]
    assert (first["model"], second["model"]) == ("first", "new")
    # Random weights answer nothing: what is cut at four tokens is unfinished, never correct.
    assert (first["avg_at_n"], first["unfinished"], first["disputed"]) == (0.0, 1.0, 0)
    assert first["mean_length"] > 0
    (pair,) = scores["comparisons"]
    assert (pair["problems"], pair["difference"]) == (3, 0.0)
    folders = {one.name: one for one in (tmp_path / "evaluated").iterdir() if one.is_dir()}
    assert {name.rpartition("-")[0] for name in folders} == {"first", "new"}
    answered = {one: (one / "generations.jsonl").stat().st_mtime_ns for one in folders.values()}
    assert main(words) == 0
    assert answered == {one: (one / "generations.jsonl").stat().st_mtime_ns for one in answered}
    damaged = min(answered) / "per_problem.parquet"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert main(words) == 0
    assert "per_problem.parquet: its content has changed" in capsys.readouterr().out
    assert damaged.read_bytes() == whole
    assert main([*words, "--set", "temperature=0"]) == 0
    assert len([one for one in (tmp_path / "evaluated").iterdir() if one.is_dir()]) == 4


def test_all_incorrect_settings_are_said_at_once() -> None:
    config = with_settings(EvaluateConfig(), ["temperature=0", "system=null", "template=null"], 5)
    assert (config.temperature, config.n) == (0.0, 5)
    assert with_settings(config, ["contest_since=2024-10-01"], 5).contests().since == date(
        2024, 10, 1
    )
    with pytest.raises(InputError, match="no day is since 2024-10-01 and before 2024-09-01"):
        with_settings(config, ["contest_since=2024-10-01", "contest_before=2024-09-01"], 5)
    with pytest.raises(InputError) as caught:
        with_settings(EvaluateConfig(), ["temprature=1", "top_p=2"], None)
    assert "temprature" in str(caught.value) and "top_p" in str(caught.value)


def test_names_of_models_and_benchmarks(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert model_of(str(models / "first")) == ("first", models / "first")
    assert model_of(f"a={models / 'first'}") == ("a", models / "first")
    assert model_of("v15_opg") is None
    with pytest.raises(InputError, match=r"data/aime_2024.jsonl does not exist. Question text is"):
        benchmark_files(["aime24"], tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("aime_2024.jsonl", "mine.jsonl"):
        (tmp_path / "data" / name).write_text("{}")
    assert benchmark_files(["aime24", "m=data/mine.jsonl", "data/mine.jsonl"], tmp_path) == {
        "aime24": Path("data/aime_2024.jsonl"),
        "m": Path("data/mine.jsonl"),
        "mine": Path("data/mine.jsonl"),
    }


def test_a_recipe_whose_model_is_not_made_says_how_to_make_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "v15_opg", "--runs", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "pclr-ms run v15_opg --until export" in said


def test_one_server_never_answers_for_two_models(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.jsonl").write_text('{"id": "1", "problem": "1+1?", "answer": "2"}\n')
    words = ["eval", str(models / "first"), str(models / "second"), "--set", "engine=server"]
    words += ["--benchmark", str(tmp_path / "b.jsonl"), "--server", "http://localhost:1/v1"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 2
    assert "evaluate one model at a time" in capsys.readouterr().err


def test_a_server_is_shown_the_key_of_a_variable(
    models: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from completion_server import CompletionServer

    server = CompletionServer()
    server.key = "s3cret"
    (tmp_path / "b.jsonl").write_text('{"id": "1", "problem": "1+1?", "answer": "2"}\n')
    words = ["eval", str(models / "first"), "--benchmark", str(tmp_path / "b.jsonl"), "-n", "2"]
    for setting in ("engine=server", "max_model_len=200", "max_new_tokens=40"):
        words += ["--set", setting]
    words += ["--output", str(tmp_path / "out")]
    try:
        for wanted, more in (
            ("--key-variable: works only with --server", ["--key-variable", "KEY_E"]),
            ("status 401", ["--server", server.url]),
            ("by --key-variable for --server", ["--server", server.url]),
            (
                "KEY_E is not set: export KEY_E=KEY",
                ["--server", server.url, "--key-variable", "KEY_E"],
            ),
            ("expected the name of an env", ["--server", server.url, "--key-variable", "s3cret"]),
        ):
            assert main([*words, *more]) != 0
            said = capsys.readouterr().err
            assert wanted in said
            assert "s3cret" not in said
        monkeypatch.setenv("KEY_E", "s3cret")
        assert main([*words, "--server", server.url, "--key-variable", "KEY_E"]) == 0
        assert len(server.asked) == 1
    finally:
        server.stop()
