from __future__ import annotations

import pytest

from pcl_reasoner.evaluate.benchmark import Question
from pcl_reasoner.evaluate.stage import benchmark_scores
from pcl_reasoner.evaluate.summary import Sample
from pcl_reasoner.evaluate.verdict import verdict
from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.report.scores import check_expected, collect_scores, compare


def _record(name, recipe="v15_opg", **benchmarks):
    counts = {"counts": {"unit": "responses", "read": 10, "kept": 9}}
    return StageRecord(
        recipe, name, {"stage": "evaluate", **counts}, {"scores": {"benchmarks": benchmarks}}
    )


def _score(average, error=0.01, **more):
    interval = [average - 1.96 * error, average + 1.96 * error]
    return {
        "n": 8,
        "avg_at_n": average,
        "standard_error": error,
        "sampling_error": error,
        "interval": interval,
        **more,
    }


def _compare(before, after):
    records = [_record("evaluate_before", aime=before), _record("evaluate_after", aime=after)]
    (pair,) = compare(collect_scores(records), records, "v15_opg")
    return pair


def test_outcome_is_what_the_interval_of_the_gain_says():
    # sqrt(0.03² + 0.04²) = 0.05, so the interval is the gain ± 0.098.
    better = _compare(_score(0.5, 0.03), _score(0.6, 0.04))
    assert better["gain_interval"] == pytest.approx([0.002, 0.198])
    assert better["outcome"] == "better"
    assert _compare(_score(0.5, 0.03), _score(0.59, 0.04))["outcome"] == "open"
    assert _compare(_score(0.5, 0.03), _score(0.4, 0.04))["outcome"] == "worse"


def test_without_an_error_the_gain_is_not_judged():
    pair = _compare(_score(0.5, 0.03), {"avg_at_n": 0.9})
    assert pair["gain"] == pytest.approx(0.4)
    assert pair["gain_interval"] is None
    assert pair["outcome"] == "unknown"


def test_scores_of_other_problems_are_not_paired():
    before, after = (
        _record("evaluate_before", aime=_score(0.5)),
        _record("evaluate_after", aime=_score(0.6)),
    )
    before.files["per_problem"] = {"aime": {"a": 0.0, "b": 1.0}}
    after.files["per_problem"] = {"aime": {"a": 0.2, "c": 1.0}}
    (pair,) = compare(collect_scores([before, after]), [before, after], "v15_opg")
    assert not pair["paired"]
    assert pair["gain_error"] == pytest.approx(0.01 * 2**0.5)


def test_before_and_after_are_found_by_name_and_own_recipe():
    records = [
        _record("evaluate", "v1_sft", aime=_score(0.1)),
        _record("evaluate_after", aime=_score(0.7), gsm=_score(0.3)),
        _record("evaluate_before", aime=_score(0.6)),
    ]
    aime, gsm = compare(collect_scores(records), records, "v15_opg")
    assert (aime["before"]["avg_at_n"], aime["after"]["avg_at_n"]) == (0.6, 0.7)
    assert gsm["before"] is None and gsm["outcome"] == "single"


def _verdicts(expect):
    after = _score(0.857, 0.005, pass_at_n=0.95)
    records = [
        _record("evaluate_before", aime24=_score(0.8)),
        _record("evaluate_after", aime24=after),
    ]
    scores = collect_scores(records)
    rows = check_expected(expect, scores, compare(scores, records, "v15_opg"), records)
    return {row["name"]: (row["got"], row["verdict"]) for row in rows}


def test_a_published_score_is_met_when_the_interval_of_the_difference_holds_it():
    # A sample's error is 0.5 · √8 points, of 8 and of the published 32 samples:
    # 1.96 · √(2 / 8 + 2 / 32) + 0.05 for rounding = 1.146 points.
    assert _verdicts({"evaluate_after": {"aime24": {"avg_at_32": 85.0}}}) == {
        "evaluate_after.aime24.avg_at_32": (0.857, "met")
    }
    assert _verdicts({"aime24.avg_at_n": 86.8})["aime24.avg_at_n"] == (0.857, "met")
    assert _verdicts({"aime24.avg_at_n": 86.9})["aime24.avg_at_n"] == (0.857, "below")
    assert _verdicts({"aime24.avg_at_n": 0.84})["aime24.avg_at_n"] == (0.857, "above")
    assert _verdicts({"aime24.avg_at_n": 90.9})["aime24.avg_at_n"] == (0.857, "below")


def test_the_report_and_the_results_page_say_the_same_of_a_published_score():
    """86.0 of 32 samples with a spread over problems of 4 points, where 90.9 was published."""
    row = {"n": 32, "avg_at_n": 0.86, "standard_error": 0.04, "sampling_error": 0.005}
    records = [_record("evaluate", aime24=row)]
    (found,) = check_expected({"aime24.avg_at_n": 90.9}, collect_scores(records), [], records)
    assert found["verdict"] == "below"
    assert verdict("PCL-Reasoner-V1.5", 90.9, 0.86, 0.005, 32).word == "worse"


def test_without_an_error_nothing_is_said_of_an_expected_fraction():
    records = [_record("evaluate", aime24={"n": 1, "avg_at_n": 0.86, "pass_at_n": 0.86})]
    expect = {"avg_at_n": 90.9, "pass_at_n": 0.86}
    found = check_expected(expect, collect_scores(records), [], records)
    assert [row["verdict"] for row in found] == ["unknown", "unknown"]


def test_bounds_counts_and_gains():
    found = _verdicts(
        {
            "aime24": {"pass_at_n": {"at_most": 0.9}},
            "evaluate_after.kept": 9,
            "gain": {"at_least": 5.0},
            "aime25": {"avg_at_n": 85.6},
        }
    )
    assert found["aime24.pass_at_n"] == (0.95, "above")
    assert found["evaluate_after.kept"] == (9, "met")
    assert found["gain"] == (pytest.approx(0.057), "met")
    assert found["aime25.avg_at_n"] == (None, "not measured")


def test_scores_name_the_kind_of_their_questions():
    code = _score(0.25, maj_at_n=0.0, kinds=["code"], outcomes={"correct": 2, "no_code": 6})
    answers = _score(0.5, maj_at_n=0.75, kinds=["math", "science"])
    old = _score(0.5, maj_at_n=0.5)
    rows = collect_scores([_record("evaluate", livecodebench=code, aime=answers, older=old)])
    assert [row["kinds"] for row in rows] == [["code"], ["math", "science"], []]
    # Programs have no answer to vote on, so a majority of 0 would mislead.
    assert [row["maj_at_n"] for row in rows] == [None, 0.75, 0.5]
    assert [row["outcomes"] for row in rows] == [{"correct": 2, "no_code": 6}, {}, {}]


def test_the_stage_evaluate_writes_the_kinds():
    sample = Sample("correct", None, None, 5, "", "stop")
    questions = [
        Question("b", str(i), "Do it.", "", kind) for i, kind in enumerate(("code", "math"))
    ]
    scores = benchmark_scores([(question, [sample]) for question in questions], None)
    (row,) = collect_scores([_record("evaluate", b=scores)])
    assert row["kinds"] == ["code", "math"]
