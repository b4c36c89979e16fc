"""Benchmarks with tests and with instructions, from a server's responses to the scores."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sandbox_helpers import need
from test_evaluate_stage import ANSWERS, CONFIG, context, model, url, write_benchmark

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.evaluate.rescore import rescore
from pcl_reasoner.evaluate.stage import EvaluateConfig, evaluate

__all__ = ["model", "url"]


def block(code: str) -> tuple[str, str]:
    return f"<think>so</think>```python\n{code}\n```", "stop"


DOUBLE = {
    "question_id": "lcb-1",
    "question_content": "Read a number and print its double.",
    "starter_code": "",
    "public_test_cases": json.dumps([{"input": "3\n", "output": "6\n", "testtype": "stdin"}]),
    "private_test_cases": json.dumps([{"input": "-4\n", "output": "-8\n", "testtype": "stdin"}]),
    "metadata": "{}",
    "difficulty": "easy",
    "platform": "made up",
    "contest_date": "2024-10-01T00:00:00",
}
EARLIER = {**DOUBLE, "question_id": "lcb-0", "contest_date": "2024-09-30T00:00:00"}
ANSWERS[DOUBLE["question_content"]] = [
    block("print(2 * int(input()))"),
    block("print(abs(2 * int(input())))"),
    ("<think>so</think>Double it.", "stop"),
    block("n = int(input())\nprint(n + n)"),
]
ANSWERS["Name two animals."] = [
    ("<think>so</think>dog cat", "stop"),
    ("<think>so</think>dog, cat", "stop"),
    ("<think>so</think>dog and cat", "stop"),
    ("<think>dog", "length"),
]


def run(
    inputs: dict[str, Path], output: Path, url: str, config: EvaluateConfig = CONFIG
) -> dict[str, Any]:
    output.mkdir()
    evaluate(config, inputs, output, context(output, url))
    found: dict[str, Any] = json.loads((output / "scores.json").read_text())
    return found


def test_programs_are_tested_and_instructions_checked(
    url: str, model: Path, tmp_path: Path
) -> None:
    need("unshare")
    code = write_benchmark(tmp_path / "livecodebench.jsonl", EARLIER, DOUBLE)
    words = {"key": 7, "prompt": "Name two animals.", "kwargs": [{}]}
    told = write_benchmark(
        tmp_path / "ifeval.jsonl", {**words, "instruction_id_list": ["punctuation:no_comma"]}
    )
    inputs = {"model": model, "benchmark.livecodebench": code, "benchmark.ifeval": told}
    config = CONFIG.model_copy(update={"contest_since": date(2024, 10, 1)})
    found = run(inputs, tmp_path / "out", url, config)
    scores = found["benchmarks"]
    assert scores["livecodebench"]["problems"] == scores["livecodebench"]["outside_dates"] == 1
    assert "outside_dates" not in scores["ifeval"]
    assert scores["livecodebench"]["avg_at_n"] == 0.5
    assert scores["livecodebench"]["outcomes"] == {"correct": 2, "incorrect": 1, "no_code": 1}
    assert scores["livecodebench"]["pass_at"] == pytest.approx({"1": 0.5, "2": 5 / 6, "4": 1.0})
    assert scores["ifeval"]["avg_at_n"] == 0.5
    assert scores["ifeval"]["outcomes"] == {"correct": 2, "incorrect": 1, "unfinished": 1}
    assert found["sandbox"]["tested"] == 3
    assert found["sandbox"]["failures"] == {"wrong": 1}
    lines = [json.loads(line) for line in (tmp_path / "out/generations.jsonl").open()]
    assert {line["benchmark"]: (line["kind"], line["accuracy"]) for line in lines} == {
        "livecodebench": ("code", [1.0, 0.0, 0.0, 1.0]),
        "ifeval": ("instruction", [1.0, 0.0, 1.0, 0.0]),
    }
    assert list((tmp_path / "out").glob("*.partial.jsonl")) == []
    # What `pclr-ms eval` shows of this file are the same scores.
    again = {one.benchmark: one for one in rescore(tmp_path / "out/generations.jsonl", "model")}
    assert {name: one.figures["avg_at_n"] for name, one in again.items()} == {
        "livecodebench": 0.5,
        "ifeval": 0.5,
    }
    assert [(one.refused, one.figures["disputed"]) for one in again.values()] == [([], 0)] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"kind": "chat"},
            "problem bad/a .* has the kind 'chat', expected one of math, science, code",
        ),
        (
            {"kind": "code", "checks": {"tests": {"format": "stdin"}}},
            "problem bad/a .* has the kind code and has unreadable tests: cases: Field required",
        ),
        (
            {"kind": "instruction", "checks": {"instructions": [{"id": "punctuation:no_coma"}]}},
            "problem bad/a .* is unknown. Did you mean 'punctuation:no_comma'",
        ),
    ],
)
def test_what_cannot_be_graded_is_an_error_before_anything_is_sampled(
    model: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """No server answers at this address."""
    file = write_benchmark(tmp_path / "bad.jsonl", {"id": "a", "problem": "1 + 1?", **changes})
    with pytest.raises(StageError, match=message):
        run({"model": model, "benchmark.bad": file}, tmp_path / "out", "http://127.0.0.1:9/v1")
