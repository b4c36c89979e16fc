"""Counts by kind, grading by kind and examples of each kind, on tables written by hand."""

from __future__ import annotations

import json

import pytest

from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.page_parts.texts import why
from pcl_reasoner.report.kinds import files_by_kind, kind_rows, lost, mixes, read_kinds

MATH = [{"problem_id": f"m{i}", "problem": f"Add {i}.", "kind": "math"} for i in range(6)]
CODE = [{"problem_id": f"c{i}", "problem": f"Write f{i}.", "kind": "code"} for i in range(4)]
CHAT = [{"problem_id": "h0", "problem": "Greet Ben.", "kind": "chat"}]
TESTS = {"format": "functional", "entry": "f", "cases": [{"args": [1], "out": 2}, "x" * 500]}
DETAIL = {"passed": 0, "total": 2, "weak": 0, "case": 0, "reason": "time", "text": ""}


def _problems(rows):
    checks = {"c": json.dumps({"tests": TESTS})}
    ground = {"ground_truth": "8"}
    return [{**row, **ground, "checks": checks.get(row["problem_id"][0], "")} for row in rows]


def _verdict(name, index, verdict, reward, **more):
    graded_by = {"m": "rule", "c": "tests", "h": "reward_model"}[name[0]]
    shared = {"answer": None, "score": None, "detail": None}
    key = {"problem_id": name, "sample_index": index}
    return {**key, "verdict": verdict, "reward": reward, "graded_by": graded_by, **shared, **more}


VERDICTS = [
    _verdict("m1", 0, "correct", 1.0, answer="8"),
    _verdict("m1", 1, "incorrect", 0.0, answer="9"),
    _verdict("c1", 0, "passed_some", 0.0, score=0.5, detail=json.dumps(DETAIL)),
    _verdict("c1", 1, "correct", 1.0, score=1.0),
    _verdict("h0", 0, "scored", 0.75, score=2.5),
    _verdict("h0", 1, "scored", 0.25, score=-0.5),
]


@pytest.fixture
def am(new_run):
    """Two sources are mixed, checked, answered twice and graded."""
    for name, rows, dropped in (("math", MATH, {"url": 3}), ("code", CODE, {})):
        read = len(rows) + sum(dropped.values())
        counts = {"read": read, "kept": len(rows), "dropped": dropped}
        new_run.stage(f"am/convert_{name}", "convert", counts)
        new_run.parquet(f"am/convert_{name}", "rows/part-00000.parquet", _problems(rows))
    origins = {"problems.math": "am/convert_math", "problems.code": "am/convert_code"}
    new_run.stage("am/convert_chat", "convert", {"read": 1, "kept": 1})
    new_run.parquet("am/convert_chat", "rows/part-00000.parquet", _problems(CHAT))
    new_run.stage(
        "am/mix",
        "mix",
        {"unit": "problems", "read": 11, "kept": 8, "dropped": {"not_taken": 3},
         "info": {"kinds": {"chat": 1, "code": 4, "math": 3}}},
        origins={**origins, "problems.chat": "am/convert_chat"},
        identity={"config": {"take": {"math": 3}}},
    )  # fmt: skip
    mixed = _problems([*MATH[:3], *CODE, *CHAT])
    new_run.parquet("am/mix", "clean.parquet", mixed)
    new_run.stage("am/sample", "sample", {"unit": "responses", "read": 16, "kept": 6,
                  "dropped": {"not_recorded": 10}}, origins={"problems": "am/mix"})  # fmt: skip
    texts = [{**row, "response": f"<think>no</think>{row['problem_id']}"} for row in VERDICTS]
    columns = ("problem_id", "sample_index", "response")
    texts = [{name: row[name] for name in columns} for row in texts]
    new_run.parquet("am/sample", "responses/00000.parquet", texts)
    # A later sample of other responses, which were not graded.
    new_run.stage("am/sample_late", "sample", {"unit": "responses", "read": 2, "kept": 2})
    late = [{"problem_id": "m1", "sample_index": i, "response": "late"} for i in (0, 1)]
    new_run.parquet("am/sample_late", "responses/00000.parquet", late)
    origins = {"responses": "am/sample", "problems": "am/mix"}
    counts = {"unit": "responses", "read": 6, "kept": 6}
    new_run.stage("am/grade", "grade", counts, origins=origins)
    new_run.parquet("am/grade", "verdicts.parquet", VERDICTS)
    return new_run


def _summary(run, output, **config):
    run.report(output, recipe={"name": "am", "profile": "laptop"}, **config)
    return json.loads((output / "summary.json").read_text())


def test_every_stage_is_counted_by_kind_with_what_it_dropped(am, tmp_path):
    rows = {row["name"]: row for row in _summary(am, tmp_path / "out")["kinds"]}
    assert rows["convert_math"]["kept"] == {"math": 6}
    # 9 rows read of one kind.
    assert rows["convert_math"]["lost"] == {"math": 3}
    assert rows["mix"]["kept"] == {"math": 3, "code": 4, "chat": 1}
    assert rows["mix"]["lost"] == {"math": 3}
    # 8 problems, twice each: 6 + 8 + 2 requests, and two responses of each kind.
    assert rows["sample"]["kept"] == {"math": 2, "code": 2, "chat": 2}
    assert rows["sample"]["lost"] == {"math": 4, "code": 6}
    # It names no inputs and has one kind only: nothing was dropped.
    assert rows["sample_late"]["lost"] == {}
    assert rows["grade"]["lost"] == {}


def test_the_page_has_the_counts_by_kind(am, browser, read_page, tmp_path):
    am.report(tmp_path / "out", recipe={"name": "am", "profile": "laptop"})
    page = (tmp_path / "out" / "report.html").as_uri()
    found = read_page(browser.chromium(browser.find_chromium(), ["--dump-dom"], page))
    assert found.repeated == []
    shown = found.texts
    assert shown["kinds.am/mix.math.kept"] == "3"
    assert shown["kinds.am/sample.math.kept"] == "2"
    assert shown["kinds.am/sample.math.lost"] == "−4"
    assert "kinds.am/mix.code.lost" not in shown
    assert shown["mix.am/mix.code"] == "4"
    assert shown["graded.am/grade.math.correct"] == "50.0"
    assert shown["graded.am/grade.code.mean_score"] == "0.75"
    # A scored response is neither correct nor incorrect.
    assert "graded.am/grade.chat.correct" not in shown
    assert shown["graded.am/grade.chat.mean_reward"] == "0.5"
    html = (tmp_path / "out" / "report.html").read_text()
    assert "The first that failed is test 1: time limit" in html
    assert "took" in html and "(asked for 3)" in html


def test_verdicts_rewards_and_scores_are_of_one_kind(am, tmp_path):
    (graded,) = _summary(am, tmp_path / "out")["graded_by_kind"]
    assert graded["kinds"]["math"] == {
        "mean_reward": 0.5,
        "mean_score": None,
        "responses": 2,
        "verdicts": {"correct": 1, "incorrect": 1},
        "graders": {"rule": 2},
    }
    assert graded["kinds"]["code"]["verdicts"] == {"correct": 1, "passed_some": 1}
    assert graded["kinds"]["code"]["mean_score"] == 0.75
    # (2.5 − 0.5) / 2
    assert graded["kinds"]["chat"]["mean_score"] == 1.0
    assert graded["kinds"]["chat"]["graders"] == {"reward_model": 2}


def test_scored_responses_do_not_count_as_incorrect(am, tmp_path):
    # Two of four are correct; the two scored ones are neither.
    assert _summary(am, tmp_path / "out")["warnings"] == []


def test_examples_are_drawn_from_each_kind_with_the_graded_responses(am, tmp_path):
    found = _summary(am, tmp_path / "out", problems_shown=1)["problems"]
    assert [(one["kind"], one["problem_id"]) for one in found] == [
        ("math", "m1"),
        ("code", "c1"),
        ("chat", "h0"),
    ]
    first, second = found[1]["responses"]
    assert first["why"]["reason"] == "time limit"
    assert json.loads(first["why"]["case"]) == TESTS["cases"][0]
    assert (first["score"], second["why"]) == (0.5, {})
    # The grading names its responses; the last stage of the type sample has others.
    assert found[0]["responses"][0]["response"] == "<think>no</think>m1"


def test_a_long_test_is_cut_and_an_instruction_is_named():
    detail = json.dumps({**DETAIL, "case": 1, "reason": "wrong", "text": "7"})
    found = why(detail, json.dumps({"tests": TESTS}))
    assert (found["test"], found["got"], found["case"]) == (2, "7", "x" * 400)
    assert found["case_cut"] and found["reason"] == "wrong value"
    named = {"not_followed": ["punctuation:no_comma"]}
    assert why(json.dumps(named), "") == named
    assert why(None, None) == {}
    # The checks are missing: the test cannot be shown.
    assert why(detail, "")["case"] == ""


def test_nothing_is_counted_where_all_problems_are_of_mathematics(new_run):
    folder = new_run.stage("v1/unique", "unique", {"read": 6, "kept": 6})
    new_run.parquet("v1/unique", "problems.parquet", MATH)
    old = new_run.stage("v1/convert", "convert", {"read": 6, "kept": 6})
    without = [{"problem_id": row["problem_id"]} for row in MATH]
    new_run.parquet("v1/convert", "rows/part-00000.parquet", without)
    assert read_kinds([folder, old]) is None
    assert files_by_kind(folder, None) == {}
    other = new_run.stage("v1/mix", "mix", {"read": 4, "kept": 4})
    new_run.parquet("v1/mix", "clean.parquet", CODE)
    kinds = read_kinds([folder, old, other])
    # Rows that were written before there were kinds are of mathematics.
    assert files_by_kind(old, kinds) == {"kinds": {"math": 6}}
    new_run.stage("v1/sample", "sample", {"read": 2, "kept": 2})
    new_run.parquet(
        "v1/sample", "responses/0.parquet", [{"problem_id": "c1"}, {"problem_id": "gone"}]
    )
    found = files_by_kind(new_run.inputs["v1/sample"], kinds)
    assert found == {"kinds": {"code": 1, "unknown": 1}}


def _record(name, unit, read, origins):
    manifest = {"stage": name, "counts": {"unit": unit, "read": read}, "origins": origins}
    return StageRecord("am", name, manifest)


def test_what_a_stage_lost_is_only_said_where_it_can_be_known():
    counted = {
        "am/mix": {"math": 4, "code": 2},
        "am/sample": {"math": 12, "code": 5},
        "am/revise": {"math": 3, "code": 2},
        "am/tidy": {"math": 10, "code": 5},
        "am/odd": {"math": 4, "code": 2},
    }
    # revise reads responses, too, but keeps problems.
    inputs = {"problems": "am/mix", "responses": "am/sample"}
    assert lost(_record("revise", "problems", 6, inputs), counted) == {"math": 1}
    assert lost(_record("tidy", "responses", 17, inputs), counted) == {"math": 2}
    # 7 is no multiple of 6 problems.
    assert lost(_record("odd", "problems", 7, {"problems": "am/mix"}), counted) == {}
    # Several kinds and no input with kinds.
    assert lost(_record("odd", "problems", 9, {"source": "am/else"}), counted) == {}


def test_a_mix_that_has_not_run_is_left_out():
    assert mixes([StageRecord("am", "mix", None)]) == []
    assert kind_rows([StageRecord("am", "mix", None)]) == []
