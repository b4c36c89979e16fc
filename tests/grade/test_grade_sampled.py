"""A judge over real HTTP whose verdicts are compared with the rule's, before all are asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from grade_helpers import correct, judge_server, write_problems, write_responses

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.reading import Responses
from pcl_reasoner.grade.sampled import SAMPLED, draw
from pcl_reasoner.grade.stage import grade

IN_FLIGHT = 8
ALL = 1000
PROMPT = "REFERENCE {ground_truth} CANDIDATE {candidate}"
Judge = Callable[[dict[str, Any], int], tuple[int, str]]


def write(path: Path, wrong: int, total: int = ALL) -> None:
    """Two responses to each problem; of every ten problems the last ``wrong`` are answered
    wrongly."""
    problems = [f"p{place:03d}" for place in range(total // 2)]
    rows = [
        (name, index, correct(str(place + (place % 10 >= 10 - wrong))), "stop", 4)
        for place, name in enumerate(problems)
        for index in range(2)
    ]
    write_responses(path / "sample", rows)
    write_problems(path / "problems", {name: str(i) for i, name in enumerate(problems)})
    (path / "judge.txt").write_text(PROMPT)


def run(
    path: Path, judge: Judge, **settings: Any
) -> tuple[Callable[[], Counts], StageContext, list[dict[str, Any]], Path]:
    output = path / "grade"
    output.mkdir(exist_ok=True)
    told = {"method": "judge", "judge_concurrency": IN_FLIGHT, **settings}
    config = GradeConfig(prompt=str(path / "judge.txt"), **told)
    inputs = {"responses": path / "sample", "problems": path / "problems"}
    bodies: list[dict[str, Any]] = []
    context = StageContext("grade", path / "apart.jsonl")

    def graded() -> Counts:
        with judge_server(judge) as (url, asked):
            context.placement = Placement(judge_urls=[url])
            try:
                return grade(config, inputs, output, context)
            finally:
                bodies.extend(asked)

    return graded, context, bodies, output


def always(verdict: str) -> Judge:
    return lambda body, number: (200, f"\\boxed{{{verdict}}}")


def good(body: dict[str, Any], number: int) -> tuple[int, str]:
    """Compares the numbers."""
    words = re.search(r"REFERENCE (\d+) CANDIDATE.*boxed\{(\d+)\}", asked_about(body))
    assert words is not None
    return 200, f"\\boxed{{{int(words[1] == words[2])}}}"


def asked_about(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"])


def test_a_judge_that_always_says_yes_is_stopped_after_the_sample(tmp_path: Path) -> None:
    """Half of the answers are wrong: 200 of 400 agree, up to 54.9 %."""
    write(tmp_path, wrong=5)
    graded, _, bodies, output = run(tmp_path, always("1"))
    with pytest.raises(StageError) as stopped:
        graded()
    assert SAMPLED <= len(bodies) <= SAMPLED + 2 * IN_FLIGHT < ALL
    text = str(stopped.value)
    assert "they agree on 200 of 400 responses, 50.0% (95 % interval up to 54.9%)" in text
    # The wrong answers of p005 to p009; each is its ground truth plus 1.
    examples = re.findall(
        r"p(\d+)/\d: rule incorrect, judge correct, answer (\d+), ground truth (\d+)", text
    )
    assert [int(answer) - int(truth) for _, answer, truth in examples] == [1, 1, 1]
    assert all(int(problem) == int(truth) for problem, _, truth in examples)
    assert "least_agreement: 0" in text and str(output / "verdicts.partial.jsonl") in text
    # The same command: nobody is asked again.
    asked = len(bodies)
    with pytest.raises(StageError, match="they agree on 200 of 400"):
        graded()
    assert len(bodies) == asked
    # Continued on purpose: only what is left is asked.
    graded, context, rest, _ = run(tmp_path, always("1"), least_agreement=0)
    counts = graded()
    assert 0 < len(rest) <= ALL - SAMPLED
    assert counts.info["outcomes"] == {"correct": ALL}
    assert any(
        "1000 of 1000 responses that have an answer are correct" in one for one in context.warnings
    )
    told = json.loads((output / "grading.json").read_text())["judge"]["compared_with_rule"]
    assert told == counts.info["compared_with_rule"]
    assert (told["n"], told["rule_not_correct_judge_correct"], told["share"]) == (400, 200, 0.5)


def test_yes_to_everything_is_stopped_where_nine_of_ten_are_correct(tmp_path: Path) -> None:
    """Of every 20 responses, 8 are taken: 0 3 5 8 10 13 15 18. Only 18 is wrong, so rule and judge
    agree on 350 of 400, 87.5 %. Of the 50 others the judge finds none: z² / (50 + z²) = 7.1 %."""
    write(tmp_path, wrong=1)
    graded, _, bodies, _ = run(tmp_path, always("1"))
    message = (
        "of 50 responses that the rule finds incorrect, the judge finds 0 incorrect, 0.0% "
        r"\(95 % interval up to 7.1%\), expected at least 50.0%"
    )
    with pytest.raises(StageError, match=message):
        graded()
    assert len(bodies) <= SAMPLED + 2 * IN_FLIGHT


def test_a_good_judge_passes_and_is_asked_once_about_each(tmp_path: Path) -> None:
    write(tmp_path, wrong=5)
    graded, context, bodies, output = run(tmp_path, good)
    counts = graded()
    assert sorted(map(asked_about, bodies)) == sorted(
        f"REFERENCE {place} CANDIDATE <answer>\\boxed{{{place + (place % 10 >= 5)}}}</answer>"
        for place in range(ALL // 2)
        for _ in range(2)
    )
    assert counts.info["outcomes"] == {"correct": 500, "incorrect": 500}
    told = json.loads((output / "grading.json").read_text())["judge"]["compared_with_rule"]
    assert told["interval"] == pytest.approx([0.99049, 1.0], abs=1e-5)  # n / (n + z²)
    assert (told["n"], told["share"], told["left_out"]) == (400, 1.0, {"no_answer": 0})
    assert context.warnings == []


def test_a_repaired_judge_is_compared_as_well(tmp_path: Path) -> None:
    """The first server says nothing that can be read, the second always says yes."""
    write(tmp_path, wrong=5, total=40)
    graded, _, _, _ = run(tmp_path, always("?"), judge_attempts=1)
    with pytest.raises(StageError, match="40 of 40 responses without a readable verdict"):
        graded()
    graded, _, bodies, _ = run(tmp_path, always("1"), judge_attempts=1)
    with pytest.raises(StageError, match="they agree on 20 of 40"):
        graded()
    assert len(bodies) == 40


def test_an_audit_is_compared_and_a_cascade_is_not(tmp_path: Path) -> None:
    write(tmp_path, wrong=5, total=40)
    graded, _, _, _ = run(tmp_path, always("1"), method="audit")
    with pytest.raises(StageError, match="they agree on 20 of 40"):
        graded()
    graded, _, bodies, _ = run(tmp_path, always("1"), method="cascade")
    assert "compared_with_rule" not in graded().info
    assert bodies == []  # integers


def test_the_sample_is_evenly_spaced_over_the_math_responses_that_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of responses 0 to 9, 4 failed and 8 has no box; of the 9 others every second is taken."""
    monkeypatch.setattr("pcl_reasoner.grade.sampled.SAMPLED", 5)
    texts = {4: ("", "error"), 8: ("<think>x</think>eight", "stop")}
    rows = [("a", i, *texts.get(i, (correct(str(i)), "stop")), 4) for i in range(10)]
    rows += [("s", i, correct("8"), "stop", 4) for i in range(10)]
    write_responses(tmp_path / "sample", rows)
    write_problems(tmp_path / "problems", {"a": "5", "s": "8"})
    file = tmp_path / "problems" / "clean.parquet"
    table = pq.read_table(file)
    pq.write_table(table.append_column("kind", [["math", "science"]]), file)
    responses = Responses(tmp_path / "sample", tmp_path / "problems")
    config = GradeConfig(method="judge")
    sample = draw(config, PROMPT, responses)
    # Of 0 1 2 3 5 6 7 8 9 the places 0, 2, 4, 6 and 8: place · 5 mod 9 is below 5.
    assert sorted(key for key in sample.ruled) == [("a", i) for i in (0, 2, 5, 7, 9)]
    verdicts = [one.verdict.outcome for one in sample.ruled.values()]
    assert verdicts == ["incorrect", "incorrect", "correct", "incorrect", "incorrect"]
    assert sample.no_answer == 0
    monkeypatch.setattr("pcl_reasoner.grade.sampled.SAMPLED", 400)
    whole = draw(config, PROMPT, responses)
    assert (len(whole.ruled), whole.no_answer) == (8, 1)
    assert draw(GradeConfig(method="cascade"), PROMPT, responses).ruled == {}
