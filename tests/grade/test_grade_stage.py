"""The stages grade and select, on real files and against a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grade_helpers import correct, judge_server, write_problems, write_responses

from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.grade.config import GradeConfig, SelectConfig
from pcl_reasoner.grade.stage import grade, select

ROWS = [
    ("a", 0, correct("8"), "stop", 4),
    ("a", 1, correct("9"), "stop", 4),
    ("a", 2, "<think>so \\boxed{8}", "length", 9),
    ("a", 3, "", "error", 0),
    ("b", 0, correct("1/2"), "stop", 5),
    ("b", 1, correct("\\frac{2}{4}"), "stop", 6),
    ("c", 0, "<think>x</think>eight", "stop", 7),
    ("c", 1, "", "timeout", 0),
]
TRUTHS = {"a": "8", "b": "0.5", "c": "8"}
VERDICTS = [
    "correct",
    "incorrect",
    "unfinished",
    "error",
    "correct",
    "correct",
    "no_box",
    "timeout",
]


def context(path: Path, **placement: Any) -> StageContext:
    return StageContext(
        name="x", quarantined=path / "quarantined.jsonl", placement=Placement(**placement)
    )


def run_grade(
    path: Path, name: str = "grade", config: GradeConfig | None = None, **placement: Any
) -> tuple[Counts, Path]:
    if not (path / "sample").exists():
        write_responses(path / "sample", ROWS)
        write_problems(path / "problems", TRUTHS)
    output = path / name
    output.mkdir(exist_ok=True)
    inputs = {"responses": path / "sample", "problems": path / "problems"}
    counts = grade(config or GradeConfig(), inputs, output, context(path, **placement))
    return counts, output


def run_select(path: Path, config: SelectConfig) -> tuple[Counts, pa.Table, StageContext]:
    output = path / "select"
    output.mkdir()
    inputs = {name: path / folder for name, folder in FOLDERS.items()}
    where = context(path)
    counts = select(config, inputs, output, where)
    return counts, pq.read_table(output / "responses.parquet"), where


FOLDERS = {"responses": "sample", "verdicts": "grade", "problems": "problems"}


def test_grade_by_rule(tmp_path: Path) -> None:
    counts, output = run_grade(tmp_path)
    table = pq.read_table(output / "verdicts.parquet")
    assert table.schema.names == [
        "problem_id",
        "sample_index",
        "verdict",
        "reward",
        "answer",
        "graded_by",
        "judge_text",
        "score",
        "detail",
    ]
    assert (table.schema.field("sample_index").type, table.schema.field("reward").type) == (
        pa.int32(),
        pa.float32(),
    )
    assert table["verdict"].to_pylist() == VERDICTS
    assert table["reward"].to_pylist() == [1, 0, 0, 0, 1, 1, 0, 0]
    assert table["answer"].to_pylist()[:3] == ["8", "9", None]
    assert set(table["graded_by"].to_pylist()) == {"rule"}
    assert table["judge_text"].null_count == 8
    assert table["problem_id"].to_pylist() == [row[0] for row in ROWS]
    assert table["sample_index"].to_pylist() == [row[1] for row in ROWS]
    assert (counts.unit, counts.read, counts.kept, counts.dropped) == ("responses", 8, 8, {})
    assert counts.info["correct_share"] == 3 / 8
    assert counts.info["outcomes"]["correct"] == 3
    assert "Grading: 8 responses" in (output / "audit.html").read_text()
    again = run_grade(tmp_path, "again")[1]
    for name in ("verdicts.parquet", "audit.html"):
        assert (output / name).read_bytes() == (again / name).read_bytes()


@pytest.mark.parametrize(
    ("truths", "message"),
    [
        ({**TRUTHS, "b": None}, "problem b has no ground truth"),
        ({**TRUTHS, "b": " "}, "problem b has no ground truth"),
        ({"a": "8"}, "problem b has responses but is not in clean.parquet"),
    ],
)
def test_a_response_without_a_ground_truth_is_an_error(
    tmp_path: Path, truths: dict[str, str | None], message: str
) -> None:
    write_responses(tmp_path / "sample", ROWS)
    write_problems(tmp_path / "problems", truths)
    with pytest.raises(StageError, match=message):
        run_grade(tmp_path)


def judged(body: dict[str, Any], number: int) -> tuple[int, str]:
    """A judge that reads the candidate's box as the prompt says."""
    prompt = body["messages"][0]["content"]
    truth, candidate = prompt.split("REFERENCE ")[1].split(" CANDIDATE ")
    equal = {"8": "\\boxed{8}", "0.5": "\\boxed{1/2}"}[truth] in candidate
    return 200, f"compared. \\boxed{{{int(equal)}}}"


def judge_config(path: Path, **settings: Any) -> GradeConfig:
    (path / "judge.txt").write_text("REFERENCE {ground_truth} CANDIDATE {candidate}")
    return GradeConfig(method="judge", prompt=str(path / "judge.txt"), **settings)


def test_grade_by_judge(tmp_path: Path) -> None:
    with judge_server(judged) as (url, bodies):
        counts, output = run_grade(tmp_path, config=judge_config(tmp_path), judge_urls=[url])
    table = pq.read_table(output / "verdicts.parquet")
    verdicts = table["verdict"].to_pylist()
    # This judge does not know that 2/4 is 0.5; what has no answer is not asked about.
    assert verdicts == [*VERDICTS[:5], "incorrect", *VERDICTS[6:]]
    assert len(bodies) == 4
    assert table["judge_text"].to_pylist()[0] == "compared. \\boxed{1}"
    assert table["judge_text"].to_pylist()[2] is None
    assert set(table["graded_by"].to_pylist()) == {"judge"}
    assert counts.info["outcomes"]["correct"] == 2
    names = ["audit.html", "grading.json", "verdicts.parquet"]
    assert sorted(path.name for path in output.iterdir()) == names
    told = json.loads((output / "grading.json").read_text())["judge"]
    assert (told["served_model"], told["temperature"], told["top_k"]) == ("judge", 0.6, 20)
    assert told["prompt_sha256"] == fingerprint((tmp_path / "judge.txt").read_text())
    assert "model_fingerprint" not in told  # of a judge elsewhere only its name is known
    (served,) = told["servers"]
    assert served["url"] == url
    assert (told["judged"], told["asked_again"], told["unreadable"]) == (4, 0, 0)


def test_judging_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    config = judge_config(tmp_path, judge_concurrency=1)
    cut = "too long"
    with (
        judge_server(lambda b, n: judged(b, n) if n < 3 else (400, cut)) as (url, _),
        pytest.raises(StageError, match="kept"),
    ):
        run_grade(tmp_path, "cut", config, judge_urls=[url])
    log = tmp_path / "cut" / "verdicts.partial.jsonl"
    with log.open("a") as handle:
        handle.write('{"problem_id": "b", "sample_ind')  # a torn line
    with judge_server(judged) as (url, bodies):
        _, resumed = run_grade(tmp_path, "cut", config, judge_urls=[url])
        assert len(bodies) == 2
        _, whole = run_grade(tmp_path, "whole", config, judge_urls=[url])
    for name in ("verdicts.parquet", "audit.html"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()


def test_unreadable_judgements_are_errors_up_to_a_share(tmp_path: Path) -> None:
    def mute_on_a(body: dict[str, Any], number: int) -> tuple[int, str]:
        known = "REFERENCE 0.5" in body["messages"][0]["content"]
        return judged(body, number) if known else (200, "I cannot say")

    with judge_server(mute_on_a) as (url, _):
        loose = judge_config(tmp_path, max_missing=0.5)
        _, output = run_grade(tmp_path, config=loose, judge_urls=[url])
        table = pq.read_table(output / "verdicts.parquet")
        assert table["verdict"].to_pylist()[:2] == ["error", "error"]
        assert table["reward"].to_pylist()[:2] == [0.0, 0.0]
        with pytest.raises(StageError, match="2 of 4 responses without a readable verdict"):
            run_grade(tmp_path, "strict", judge_config(tmp_path), judge_urls=[url])


def test_judging_needs_a_server_and_a_whole_prompt(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="placement.judge_urls"):
        run_grade(tmp_path, config=GradeConfig(method="judge"))
    config = judge_config(tmp_path)
    (tmp_path / "judge.txt").write_text("{candidate}")
    with pytest.raises(StageError, match="lacks {ground_truth}"):
        run_grade(tmp_path, config=config, judge_urls=["http://127.0.0.1:9/v1"])


def test_select_keeps_mixed_groups(tmp_path: Path) -> None:
    run_grade(tmp_path)
    counts, table, where = run_select(
        tmp_path, SelectConfig(drop_groups="both", max_response_tokens=8)
    )
    # a has 1 of 4 correct; b 2 of 2; c 0 of 2. Of a, the response of 9 tokens is too long.
    assert table["problem_id"].to_pylist() == ["a", "a", "a"]
    assert table["sample_index"].to_pylist() == [0, 1, 3]
    assert table["reward"].to_pylist() == [1.0, 0.0, 0.0]
    assert table["pass_rate"].to_pylist() == [0.25] * 3
    # A group of one correct and three incorrect: mean 1/4, deviation sqrt(3)/4.
    assert table["advantage"].to_pylist() == pytest.approx([3**0.5, -(3**-0.5), -(3**-0.5)])
    assert table.schema.names[-3:] == ["reward", "pass_rate", "advantage"]
    assert table.schema.field("reward").type == pa.float32()
    assert table["token_ids"].to_pylist()[0] == [0, 1, 2, 3]
    assert counts.dropped == {"all_correct_group": 2, "all_incorrect_group": 2, "over_length": 1}
    assert (counts.read, counts.kept) == (8, 3)
    assert counts.info == {
        "positive": 1,
        "negative": 2,
        "correct_share": 1 / 3,
        # a's four, before the limit of length took one.
        "mixed_rows": 4,
        "mixed_correct": 1,
        "mixed_incorrect": 3,
        "left_by_groups": 4,
    }
    assert "1 of 3 responses (33.3%) are correct" in where.warnings[0]


def test_select_all_incorrect_only(tmp_path: Path) -> None:
    run_grade(tmp_path)
    counts, table, where = run_select(tmp_path, SelectConfig(drop_groups="all_incorrect"))
    assert set(table["problem_id"].to_pylist()) == {"a", "b"}
    assert counts.dropped == {"all_incorrect_group": 2}
    # The choice leaves b's two correct ones too.
    assert (counts.info["mixed_rows"], counts.info["left_by_groups"]) == (4, 6)
    assert where.warnings == []  # 3 of 6 are correct


@pytest.mark.parametrize(("equal", "warns"), [(9, False), (10, True)])
def test_few_responses_after_groups_were_dropped_are_a_warning(
    tmp_path: Path, equal: int, warns: bool
) -> None:
    """One mixed group of 2 responses among 10 groups (10 % are left) or 11 (9.1 %)."""
    rows = [(f"p{i:02d}", j, correct("8"), "stop", 4) for i in range(equal) for j in range(2)]
    rows += [("q", 0, correct("8"), "stop", 4), ("q", 1, correct("9"), "stop", 9)]
    write_responses(tmp_path / "sample", rows)
    write_problems(tmp_path / "problems", {row[0]: "8" for row in rows})
    run_grade(tmp_path)
    # The limit on lengths drops one more, which does not count here.
    _, _, where = run_select(tmp_path, SelectConfig(max_response_tokens=8))
    text = "only 2 of 22 responses (9.1%) are left after groups were dropped"
    assert any(text in one for one in where.warnings) == warns
    assert len(where.warnings) == warns


def test_a_response_without_a_verdict_is_an_error(tmp_path: Path) -> None:
    _, output = run_grade(tmp_path)
    file = output / "verdicts.parquet"
    pq.write_table(pq.read_table(file).slice(0, 7), file)
    with pytest.raises(StageError, match="first: c/1.*missing reward is not a 0"):
        run_select(tmp_path, SelectConfig())


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    write_responses(tmp_path / "sample", ROWS[4:])  # one group all correct, one all incorrect
    write_problems(tmp_path / "problems", TRUTHS)
    run_grade(tmp_path)
    with pytest.raises(StageError, match="no response is left"):
        run_select(tmp_path, SelectConfig())


def test_batches_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole = run_grade(tmp_path)
    monkeypatch.setattr("pcl_reasoner.grade.reading._BATCH_ROWS", 3)
    _, small = run_grade(tmp_path, "small")
    expected = pq.read_table(whole / "verdicts.parquet")
    assert pq.read_table(small / "verdicts.parquet").equals(expected)


def test_configs_refuse_unknown_keys() -> None:
    with pytest.raises(ValueError, match="methods"):
        GradeConfig.model_validate(json.loads('{"methods": "rule"}'))
