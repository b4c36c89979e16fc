"""Sources that are not on this machine: a warning of ``validate``, and one refusal of ``run``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from preflight_helpers import own_launch, verdict

from pcl_reasoner.cli.main import cli

RUN = {"here": True, "to_run": {"v15_opg/sample"}}


def test_absent_sources_are_one_warning(tmp_path: Path) -> None:
    """A folder of weights and a file of questions are absent; the other questions are here."""
    (tmp_path / "here.jsonl").write_text("{}\n")
    (tmp_path / "empty").mkdir()
    words = (
        "sources.policy.path=/no/such/V1",
        f"sources.aime24.path={tmp_path}/here.jsonl",
        "sources.aime25.path=/no/questions.jsonl",
        f"sources.judge.path={tmp_path}/empty",
    )
    found = verdict("v15_opg", "atlas_910c_16x16", *words, sources=True)
    assert found.errors == []
    assert found.warnings == [
        "not on this machine: source policy (/no/such/V1), aime25 (/no/questions.jsonl), judge "
        f"({tmp_path}/empty). A run refuses what its own machine lacks: put the files there, or "
        "give other paths, e.g. sources.policy.path=PATH."
    ]


def test_a_source_whose_files_are_here_is_not_told(tmp_path: Path) -> None:
    file = tmp_path / "data" / "math-0.parquet"
    file.parent.mkdir()
    file.write_bytes(b"x")
    data = f"sources.nemotron.path={tmp_path}"
    until = {"until": "convert", "sources": True}
    assert verdict("v15_opg", "atlas_910c_16x16", data, **until).warnings == []
    file.rename(tmp_path / "math-0.parquet")
    [said] = verdict("v15_opg", "atlas_910c_16x16", data, **until).warnings
    assert f"nemotron ({tmp_path} with files 'data/math-*.parquet')" in said


def test_at_the_start_of_a_run_all_are_errors() -> None:
    words = ("sources.policy.path=/no/V1", "sources.judge.path=/no/J", "train.betas=[9,95]")
    found = verdict("v15_opg", "atlas_910c_16x16", *words, sources=True, **RUN)
    absent = [one.partition(":")[0] for one in found.errors if "no such files" in one]
    assert absent == ["source policy", "source aime24", "source aime25", "source judge"]
    assert not [one for one in found.warnings if one.startswith("not on this machine")]


def test_a_run_tells_all_of_them_before_a_host_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "pcl_reasoner.preflight.check.check_machines", lambda *_: asked.append("hosts")
    )
    launch = own_launch(tmp_path, "atlas_910c_16x16")
    words = ["run", "v15_opg", "--launch", launch, "--start", "ssh", "--runs", str(tmp_path)]
    words += ["sources.policy.path=/no/V1", "sources.judge.path=/no/J"]
    words += ["sources.aime24.path=/no/24.jsonl", "sources.aime25.path=/no/25.jsonl"]
    answer = CliRunner().invoke(cli, [*words, "pack.seq_length=16384"])
    said = str(answer.exception) if answer.exception else answer.output
    assert answer.exit_code != 0 and asked == []
    for part in ("/no/V1", "/no/J", "/no/24.jsonl", "/no/25.jsonl"):
        assert said.count(part) == 1, said
    assert "pack.seq_length (override" in said
