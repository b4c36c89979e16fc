"""``--start`` reaches the stages, and is no part of what they make."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_stages
from click.testing import CliRunner

from pcl_reasoner import stages
from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.stage import Counts, StageContext

SEEN: list[str | None] = []


def numbers(config: object, inputs: object, output: Path, context: StageContext) -> Counts:
    SEEN.append(context.start)
    (output / "numbers.json").write_text("[1, 2, 3]")
    return Counts(unit="numbers", read=3, kept=3)


def test_the_option_reaches_a_stage_and_no_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, stage in tiny_stages.TINY.items():
        monkeypatch.setitem(stages.STAGES, name, stage)
    monkeypatch.setattr(tiny_stages, "numbers", numbers)
    words = ["run", *tiny_stages.write(tmp_path), "--until", "numbers"]
    runs = ["--runs", str(tmp_path / "runs")]
    assert CliRunner().invoke(cli, [*words, *runs, "--start", "ssh"]).exit_code == 0
    assert CliRunner().invoke(cli, [*words, *runs, "--from", "numbers"]).exit_code == 0
    again = CliRunner().invoke(cli, [*words, *runs, "--start", "local"])
    assert "nothing to do" in again.output
    assert SEEN == ["ssh", None]


def test_another_word_is_refused(tmp_path: Path) -> None:
    words = ["run", *tiny_stages.write(tmp_path), "--start", "slurm"]
    answer = CliRunner().invoke(cli, words)
    assert answer.exit_code == 2
    assert "'slurm' is not one of 'ssh', 'local'" in answer.output
