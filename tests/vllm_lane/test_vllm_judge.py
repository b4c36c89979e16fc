"""Grading by a judge that a real vLLM serves: a tiny model that was trained to give verdicts."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from vllm_helpers import (
    CONTEXT,
    JUDGE_PROMPT,
    alive,
    context,
    kill,
    lines_of,
    processes_of,
    served,
    serving,
    wait_for,
)

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.judging import VerdictLog
from pcl_reasoner.grade.stage import grade

ANSWERED = ("correct", "incorrect")
"""Outcomes of responses that have an answer, by the rule."""


@pytest.fixture(scope="module")
def prompt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("prompt") / "judge.txt"
    file.write_text(JUDGE_PROMPT)
    return file


def config(prompt: Path, **keys: Any) -> GradeConfig:
    told = {"judge_model": "judge", "judge_max_new_tokens": 40, "judge_max_model_len": CONTEXT}
    # The tiny judge is not as good as one that grades for a training: see how it agrees below.
    common = {"judge_concurrency": 32, "least_agreement": 0}
    return GradeConfig(prompt=str(prompt), **{**told, **common, **keys})


def graded(output: Path) -> dict[tuple[str, int], dict[str, Any]]:
    rows = pq.read_table(output / "verdicts.parquet").to_pylist()
    found = {(row["problem_id"], row["sample_index"]): row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def by_rule(drawn: Path, inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's responses, graded by rule."""
    output = tmp_path_factory.mktemp("rule")
    read = {"responses": drawn, "problems": inputs["problems"]}
    grade(GradeConfig(), read, output, context(output))
    return output


@pytest.fixture(scope="module")
def audited(
    drawn: Path,
    inputs: dict[str, Path],
    judge: Path,
    prompt: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Counts, Path, list[str]]:
    """All responses judged, the server killed twice; the stage ends with the first kill only."""
    output = tmp_path_factory.mktemp("audit") / "grade-12345678.partial"
    log = output / "verdicts.partial.jsonl"
    read = {"responses": drawn, "problems": inputs["problems"], "judge": judge}
    seen: set[int] = set()
    close = VerdictLog.close

    def close_and_copy(self: VerdictLog) -> None:
        close(self)
        shutil.copy(log, output.parent / "all.jsonl")

    def kill_after(victim: str, lines: int) -> threading.Thread:
        def wait_and_kill() -> None:
            wait_for(lambda: len(lines_of(log)) > lines)
            seen.update(kill(victim))

        killer = threading.Thread(target=wait_and_kill)
        killer.start()
        return killer

    killer = kill_after("front", 200)
    where = context(output, judging={**serving(), "restarts": 0})
    with pytest.raises(StageError, match="lost 1 times, restarts is 0"):
        grade(config(prompt, method="audit"), read, output, where)
    killer.join()
    assert not processes_of(os.getpid())
    kept = lines_of(log)
    assert len(kept) > 200

    killer = kill_after("EngineCore", len(kept) + 300)
    where = context(output, judging=serving())
    with pytest.MonkeyPatch.context() as patch:
        # The log goes when all is graded; what is asked twice would stand in it twice.
        patch.setattr(VerdictLog, "close", close_and_copy)
        counts = grade(config(prompt, method="audit"), read, output, where)
    killer.join()
    assert len(seen) >= 8  # watch, front, engine and worker of two servers
    assert not [process for process in seen if alive(process)]
    assert not processes_of(os.getpid())
    assert lines_of(output.parent / "all.jsonl")[: len(kept)] == kept
    return counts, output, where.warnings


def test_a_judge_killed_twice_has_judged_every_answer_once(
    audited: tuple[Counts, Path, list[str]], by_rule: Path
) -> None:
    counts, output, warnings = audited
    rule = {key for key, row in graded(by_rule).items() if row["verdict"] in ANSWERED}
    assert len(rule) > 1000
    lines = [line for line in lines_of(output.parent / "all.jsonl") if "problem_id" in line]
    keys = [(line["problem_id"], line["sample_index"]) for line in lines]
    assert len(keys) == len(set(keys))
    assert set(keys) == rule
    assert counts.info["judged"] == len(rule)
    assert counts.info["asked_again"] == sum(line["asked"] - 1 for line in lines)
    # What was in flight at both ends, 32 at a time, and a few that met a closed door.
    assert 0 < sum(counts.info["retried"].values()) <= 2 * (32 + 4)
    assert any("restarted 1 times" in warning for warning in warnings)


def test_the_audit_of_a_judge_that_was_trained_to_judge_agrees_with_the_rule(
    audited: tuple[Counts, Path, list[str]], by_rule: Path
) -> None:
    counts, output, _ = audited
    rule, judged = graded(by_rule), graded(output)
    read = {key for key, row in judged.items() if row["graded_by"] == "judge"}
    assert len(read) == counts.info["judged"] - counts.info["unreadable"]
    found = counts.info["agreement"]
    agreed = found["rule_correct_judge_correct"] + found["rule_not_correct_judge_not_correct"]
    same = sum(rule[key]["verdict"] == judged[key]["verdict"] for key in read)
    assert (agreed, found["both"]) == (same, len(read))
    # It judged 616 of all 625 pairs of numbers below 25 correctly.
    assert agreed > 0.75 * found["both"]
    assert found["kappa"] > 0.4
    sampled = counts.info["compared_with_rule"]
    assert 100 < sampled["n"] <= 400
    assert abs(sampled["share"] - agreed / found["both"]) < 0.1
    disagreements = (output / "disagreements.jsonl").read_text().splitlines()
    assert len(disagreements) == found["both"] - agreed
    told = json.loads((output / "grading.json").read_text())["judge"]
    assert {one["owned_by"] for one in told["servers"]} == {"vllm"}
    assert len(told["servers"]) == 2
    assert told["served_model"] == "judge"
    assert len(told["model_fingerprint"]) == len(told["prompt_sha256"]) == 64


@pytest.fixture(scope="module")
def url(judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the judge that is there already."""
    yield from served(judge, "judge", tmp_path_factory.mktemp("server"))


def few(folder: Path, drawn: Path, problems: Path, count: int) -> dict[str, Path]:
    """The responses to the first problems; every second ground truth as a decimal."""
    table = pq.read_table(problems / "clean.parquet").sort_by("problem_id")[:count]
    truths = [
        f"{truth}.0" if place % 2 else truth
        for place, truth in enumerate(table["ground_truth"].to_pylist())
    ]
    names = set(table["problem_id"].to_pylist())
    column = table.schema.get_field_index("ground_truth")
    (folder / "problems").mkdir(parents=True)
    (folder / "sample" / "responses").mkdir(parents=True)
    pq.write_table(
        table.set_column(column, "ground_truth", pa.array(truths)),
        folder / "problems" / "clean.parquet",
    )
    responses = pq.read_table(drawn / "responses" / "part-00000.parquet")
    keep = pa.array([name in names for name in responses["problem_id"].to_pylist()])
    pq.write_table(responses.filter(keep), folder / "sample" / "responses" / "part-0.parquet")
    return {"responses": folder / "sample", "problems": folder / "problems"}


def test_a_cascade_asks_where_the_rule_is_not_sure(
    url: str,
    drawn: Path,
    inputs: dict[str, Path],
    by_rule: Path,
    prompt: Path,
    tmp_path: Path,
) -> None:
    read = few(tmp_path, drawn, inputs["problems"], 24)
    problems = pq.read_table(read["problems"] / "clean.parquet").to_pylist()
    decimal = {row["problem_id"] for row in problems if row["ground_truth"].endswith(".0")}
    output = tmp_path / "out"
    settings = config(prompt, method="cascade", max_missing=1.0)
    counts = grade(settings, read, output, context(output, judge_urls=[url]))
    rule = graded(by_rule)
    asked = {key for key, row in graded(output).items() if row["judge_text"] is not None}
    assert asked == {
        key for key, row in rule.items() if key[0] in decimal and row["verdict"] in ANSWERED
    }
    assert counts.info["judged"] == len(asked) > 40
    for key, row in graded(output).items():
        if key not in asked:
            assert (row["verdict"], row["graded_by"]) == (rule[key]["verdict"], "rule")


def test_verdicts_that_are_cut_off_are_asked_again_counted_and_over_a_share_an_error(
    url: str, drawn: Path, inputs: dict[str, Path], prompt: Path, tmp_path: Path
) -> None:
    read = few(tmp_path, drawn, inputs["problems"], 6)
    cut = {"method": "judge", "judge_max_new_tokens": 3, "judge_attempts": 2}
    output = tmp_path / "out"
    where = context(output, judge_urls=[url])
    with pytest.raises(StageError, match="responses without a readable verdict"):
        grade(config(prompt, **cut), read, output, where)
    judged = [line for line in lines_of(output / "verdicts.partial.jsonl") if "correct" in line]
    counts = grade(config(prompt, **cut, max_missing=1.0), read, output, where)
    assert len(judged) > 20
    assert {line["asked"] for line in judged} == {2}
    figures = [counts.info[name] for name in ("judged", "asked_again", "unreadable")]
    assert figures == [len(judged)] * 3
    assert counts.info["outcomes"]["error"] == len(judged)
