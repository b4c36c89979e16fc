"""AM-Thinking-v1's recipe on a laptop, up to its SFT: what is planted is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pcl_reasoner.cli.main import cli

SMALL = (
    "synthetic.math_problems=300",
    "synthetic.code_problems=120",
    "mix.take.chat=10",
    "synthetic.benchmark_problems=24",
    "train.probe.every=50",
)


def run(runs: Path, *words: str) -> str:
    command = ["run", "am_thinking_v1", "--runs", str(runs), *words]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    return done.output


def counts(runs: Path, stage: str) -> dict[str, Any]:
    (folder,) = (runs / "am_thinking_v1").glob(f"{stage}-*/manifest.json")
    found: dict[str, Any] = json.loads(folder.read_text())["counts"]
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    run(folder, "--until", "tokenize", *SMALL)
    return folder


def planted(runs: Path) -> dict[str, dict[str, int]]:
    (file,) = (runs / "am_thinking_v1").glob("synthetic-*/planted.json")
    found: dict[str, dict[str, int]] = json.loads(file.read_text())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage", ["convert_math", "convert_code", "unique_math", "contamination", "check_tests"]
)
def test_every_planted_query_is_dropped_for_its_reason(runs: Path, stage: str) -> None:
    assert counts(runs, stage)["dropped"] == planted(runs)[stage]


@pytest.mark.slow
def test_wrong_ground_truths_are_revised_upheld_or_left(runs: Path) -> None:
    outcomes = counts(runs, "revise")["info"]["outcomes"]
    agreed = outcomes.pop("agreed")
    assert outcomes == planted(runs)["revise"]
    assert agreed == 300 - 12


@pytest.mark.slow
def test_every_planted_response_is_dropped_for_its_reason(runs: Path) -> None:
    assert counts(runs, "tidy")["dropped"] == planted(runs)["tidy"]


@pytest.mark.slow
def test_the_responses_of_the_trained_policy_get_the_form_of_the_teachers(runs: Path) -> None:
    run(runs, "--until", "evaluate_sft", *SMALL)
    (file,) = (runs / "am_thinking_v1").glob("train-*/probe.jsonl")
    probes = [json.loads(line) for line in file.read_text().splitlines()]
    # The random model seldom ends a response before the limit of 160 tokens; a story takes 45.
    assert (probes[0]["stop_ratio"], probes[0]["mean_length"] > 100) == (
        pytest.approx(0, abs=0.5),
        True,
    )
    assert (probes[-1]["stop_ratio"] > 0.9, probes[-1]["mean_length"] < 80) == (True, True)
    (scores,) = (runs / "am_thinking_v1").glob("evaluate_sft-*/scores.json")
    figures = json.loads(scores.read_text())["benchmarks"]
    assert (
        sum(figures["benchmark_code"]["outcomes"].values())
        == 2 * figures["benchmark_code"]["problems"]
    )
