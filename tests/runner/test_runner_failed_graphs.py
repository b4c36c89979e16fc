"""A graph that MindSpore cannot compile leaves its file in the run folder only; about 15 s."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_stages
import wrong_graph

from pcl_reasoner.hosts.msrun import training_environment
from pcl_reasoner.runner import failed_graphs

LEFT = "rank_0/om/analyze_fail.ir"
TREE = Path(failed_graphs.__file__).parents[2]


def call(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder of its own, which must stay empty."""
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name != failed_graphs.VARIABLE}
    env = {**kept, "PYTHONPATH": str(TREE), **environment}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_mindspore_by_itself_writes_into_the_working_directory(tmp_path: Path) -> None:
    """Otherwise the tests below would show nothing."""
    call([wrong_graph.__file__], tmp_path / "here")
    assert (tmp_path / "here" / LEFT).is_file()


def test_a_run_keeps_it_with_the_logs_of_the_stage(tmp_path: Path) -> None:
    words = tiny_stages.write(tmp_path)
    command = [tiny_stages.__file__, "run", *words, "half.fault=graph"]
    answer = call([*command, "--runs", str(tmp_path / "runs")], tmp_path / "here")
    assert answer.returncode == 1
    assert "analyze_fail.ir" in answer.stderr
    assert list((tmp_path / "here").iterdir()) == []
    [left] = (tmp_path / "runs").rglob("analyze_fail.ir")
    assert left.relative_to(tmp_path / "runs" / "tiny" / "logs").match(f"half-*/{LEFT}")


def test_a_training_process_keeps_it_with_its_logs(tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    call([wrong_graph.__file__], tmp_path / "here", **training_environment(stage, 1, 1))
    assert list((tmp_path / "here").iterdir()) == []
    assert (stage / "work" / "log" / LEFT).is_file()


def test_the_variable_is_set_only_during_a_stage_and_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(failed_graphs.VARIABLE, raising=False)
    with failed_graphs.failed_graphs_in(tmp_path / "a"):
        assert os.environ[failed_graphs.VARIABLE] == str(tmp_path / "a")
    assert failed_graphs.VARIABLE not in os.environ
    monkeypatch.setenv(failed_graphs.VARIABLE, "/mine")
    with failed_graphs.failed_graphs_in(tmp_path / "a"):
        assert os.environ[failed_graphs.VARIABLE] == "/mine"
    assert os.environ[failed_graphs.VARIABLE] == "/mine"
