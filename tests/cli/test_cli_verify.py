"""``pclr-ms verify`` names each damaged file, its stage, and the command that makes it again."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_stages
from runner_helpers import run

from pcl_reasoner import stages
from pcl_reasoner.cli.main import main
from pcl_reasoner.core import artifact
from pcl_reasoner.runner import sources
from pcl_reasoner.runner.plan import Plan


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    for name, stage in tiny_stages.TINY.items():
        monkeypatch.setitem(stages.STAGES, name, stage)
    tiny_stages.write(tmp_path)
    return run(tmp_path, "half.rate=0.25")[0]


def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["verify", *words, "--runs", str(tmp_path / "runs")])
    return code, capsys.readouterr().out


def test_all_is_well(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = verify(tmp_path, capsys)
    # numbers, half, slow and report, each with its quarantined.jsonl
    assert (code, out.split(", read in")[0]) == (
        0,
        "4 finished stages and sources, 8 files, 0.00 GB",
    )
    assert out.endswith("none damaged\n")


def test_each_damage_with_its_remedy(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers, half, slow, _ = (one.folder for one in plan.stages)
    (numbers / "numbers.json").write_text("[1, 2, 3, 4, 5, 6, 7, 9]")
    (half / "even.json").unlink()
    (slow / "manifest.json").write_text("{}")
    code, out = verify(tmp_path, capsys)
    assert code == 1
    assert f"{numbers / 'numbers.json'}: its content has changed" in out
    command = f"{tmp_path / 'tiny.yaml'} --launch {tmp_path / 'here.yaml'} half.rate=0.25"
    assert f"made by tiny/half; to correct it: pclr-ms run {command} --until half" in out
    assert f"{half / 'even.json'}: missing" in out
    assert f"{slow / 'manifest.json'}: damaged: it does not have its own checksum" in out
    assert "3 damaged" in out
    (slow / "manifest.json").unlink()
    assert f"{slow / 'manifest.json'}: missing" in verify(tmp_path, capsys)[1]


def test_the_command_that_is_shown_makes_it_again(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan.stages[1].folder / "even.json").write_text("[2, 4, 6, 9]")
    _, out = verify(tmp_path, capsys)
    words = out.split("pclr-ms ")[1].split("\n")[0].split()
    assert main(words) == 0
    assert f"{plan.stages[1].title} is damaged and is made again" in capsys.readouterr().out
    assert verify(tmp_path, capsys)[0] == 0


def test_what_somebody_added_is_named(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan.stages[1].folder / "more.json").touch()
    code, out = verify(tmp_path, capsys)
    assert code == 1
    assert "more.json: was added" in out
    assert "move the added files elsewhere" in out


def test_fetched_sources_belong_to_all_runs(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "hub" / "dataset--a--b@c"
    folder.mkdir(parents=True)
    (folder / "x.txt").write_text("abc")
    record = {"x.txt": {"sha256": artifact.hash_file(folder / "x.txt"), "bytes": 3}}
    artifact.write_checked(folder / sources.COMPLETE, record)
    assert verify(tmp_path, capsys)[0] == 0
    (folder / "x.txt").write_text("abd")
    assert "x.txt: its content has changed" in verify(tmp_path, capsys)[1]
    assert verify(tmp_path, capsys, "tiny")[0] == 0


def test_a_run_that_is_not_there(plan: Plan, tmp_path: Path) -> None:
    assert main(["verify", "tinny", "--runs", str(tmp_path / "runs")]) == 2
