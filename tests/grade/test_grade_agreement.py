"""Rule and judge on the same responses: kappa by hand, the cascade's questions, a person's word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from grade_helpers import correct, judge_server, write_problems, write_responses

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.agreement import Agreement, read_human, unsure
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.stage import grade
from pcl_reasoner.verifiers.answers import Verdict

ROWS = [
    ("a", 0, correct("8"), "stop", 4),
    ("a", 1, correct("9"), "stop", 4),
    ("a", 2, correct("\\text{eight}"), "stop", 4),
    ("b", 0, correct("1/2"), "stop", 5),
    ("b", 1, correct("0.5"), "stop", 6),
    ("b", 2, correct("(0,1)"), "stop", 6),
    ("b", 3, "<think>x</think>a half", "stop", 7),
]
TRUTHS = {"a": "8", "b": "0.5"}
BY_RULE = ["correct", "incorrect", "incorrect", "correct", "correct", "incorrect", "no_box"]


def run(path: Path, config: GradeConfig, answer: Any) -> tuple[Any, list[dict[str, Any]], Path]:
    write_responses(path / "sample", ROWS)
    write_problems(path / "problems", TRUTHS)
    output = path / "grade"
    output.mkdir()
    inputs = {"responses": path / "sample", "problems": path / "problems"}
    with judge_server(answer) as (url, bodies):
        context = StageContext("x", path / "apart.jsonl", placement=Placement(judge_urls=[url]))
        counts = grade(config, inputs, output, context)
    return counts, bodies, output


def config(path: Path, method: str, **settings: Any) -> GradeConfig:
    (path / "judge.txt").write_text("REFERENCE {ground_truth} CANDIDATE {candidate}")
    return GradeConfig(method=method, prompt=str(path / "judge.txt"), **settings)


def judge(body: dict[str, Any], number: int) -> tuple[int, str]:
    """Knows that eight is 8; does not know that 1/2 is 0.5."""
    candidate = body["messages"][0]["content"].split(" CANDIDATE ")[1]
    known = ("\\boxed{8}", "\\boxed{\\text{eight}}", "\\boxed{0.5}")
    return 200, f"\\boxed{{{int(any(one in candidate for one in known))}}}"


@pytest.mark.parametrize(
    ("answer", "truth", "expected"),
    [
        ("8", "8", False),
        ("008", "8", False),
        ("9", "8", False),
        ("x+1", " x+1 ", False),
        (None, "8", False),
        ("1/2", "0.5", True),
        ("8", "\\frac{16}{2}", True),
    ],
)
def test_what_the_rule_is_not_sure_of(answer: str | None, truth: str, expected: bool) -> None:
    assert unsure(answer, truth) == expected


def test_kappa_by_hand() -> None:
    # 20 both correct, 5 rule only, 10 judge only, 15 neither: o = 35/50 = 0.7,
    # rule 25/50, judge 30/50: e = 0.5 · 0.6 + 0.5 · 0.4 = 0.5; kappa = 0.2 / 0.5 = 0.4.
    found = Agreement()
    record = {"problem_id": "a", "sample_index": 0, "response": "x"}
    for count, rule, says in (
        (20, "correct", True),
        (5, "correct", False),
        (10, "incorrect", True),
    ):
        for _ in range(count):
            found.add(record, "8", Verdict(rule, "8"), says, "text")  # type: ignore[arg-type]
    for _ in range(15):
        found.add(record, "8", Verdict("incorrect", "9"), False, "text")
    assert found.kappa() == pytest.approx(0.4)
    assert len(found.disagreements) == 15
    assert found.info()["rule_correct_judge_not_correct"] == 5
    assert Agreement().kappa() is None
    alike = Agreement()
    alike.add(record, "8", Verdict("correct", "8"), True, "text")
    assert alike.kappa() is None


def test_a_cascade_asks_only_where_the_rule_is_not_sure(tmp_path: Path) -> None:
    counts, bodies, output = run(tmp_path, config(tmp_path, "cascade"), judge)
    asked = sorted(body["messages"][0]["content"].split("boxed")[1][:12] for body in bodies)
    assert [one[:5] for one in asked] == ["{(0,1", "{1/2}", "{\\tex"]
    table = pq.read_table(output / "verdicts.parquet")
    # eight is mended; 1/2, which the rule had correct, is lost by this judge.
    expected = ["correct", "incorrect", "correct", "incorrect", "correct", "incorrect", "no_box"]
    assert table["verdict"].to_pylist() == expected
    by = ["rule", "rule", "judge", "judge", "rule", "judge", "rule"]
    assert table["graded_by"].to_pylist() == by
    assert counts.info["graded_by"] == {"judge": 3, "rule": 4}
    assert counts.info["agreement"]["both"] == 3
    page = (output / "audit.html").read_text()
    assert "3 responses graded by both" in page and "2 disagreements" in page


def test_an_audit_has_both_verdicts_and_a_person_stands_over_them(tmp_path: Path) -> None:
    counts, bodies, output = run(tmp_path, config(tmp_path, "audit"), judge)
    assert len(bodies) == 6
    agreement = counts.info["agreement"]
    assert (agreement["rule_correct_judge_correct"], agreement["both"]) == (2, 6)
    lines = [json.loads(one) for one in (output / "disagreements.jsonl").read_text().splitlines()]
    found = [(one["problem_id"], one["sample_index"], one["rule"], one["judge"]) for one in lines]
    assert found == [("a", 2, "incorrect", "correct"), ("b", 0, "correct", "incorrect")]
    assert all(one["correct"] is None for one in lines)
    # A person decides one of the two, and one response that is not there.
    lines[1]["correct"] = True
    human = tmp_path / "human.jsonl"
    rows = [*lines, {"problem_id": "z", "sample_index": 0, "correct": False}]
    human.write_text("".join(json.dumps(one) + "\n" for one in rows))
    (tmp_path / "again").mkdir()
    counts, _, output = run(
        tmp_path / "again", config(tmp_path / "again", "audit", human=str(human)), judge
    )
    table = pq.read_table(output / "verdicts.parquet")
    expected = ["correct", "incorrect", "correct", "correct", "correct", "incorrect", "no_box"]
    assert table["verdict"].to_pylist() == expected
    assert table["graded_by"].to_pylist()[3] == "human"
    assert table["reward"].to_pylist()[3] == 1.0
    assert counts.info["human_not_here"] == 1


def test_a_reply_that_cannot_be_read_leaves_the_rules_word(tmp_path: Path) -> None:
    mute = config(tmp_path, "cascade", max_missing=1.0)
    counts, bodies, output = run(tmp_path, mute, lambda body, number: (200, "I cannot say."))
    assert len(bodies) == 9  # three questions, asked three times each
    assert counts.info["unreadable"] == 3
    assert pq.read_table(output / "verdicts.parquet")["verdict"].to_pylist() == BY_RULE


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: (expected problem_id|not JSON)"),
        ('{"problem_id": "a", "sample_index": 0}', "line 1: (expected problem_id|not JSON)"),
        (
            '{"problem_id": "a", "sample_index": 0, "correct": 1}',
            "correct must be true, false or null",
        ),
        (
            '{"problem_id": "a", "sample_index": 0, "correct": true}\n'
            '{"problem_id": "a", "sample_index": 0, "correct": false}',
            "line 2: a/0 has another verdict on an earlier line",
        ),
    ],
)
def test_a_bad_file_of_a_person_is_an_error(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "human.jsonl").write_text(line)
    with pytest.raises(InputError, match=message):
        read_human(tmp_path / "human.jsonl")
