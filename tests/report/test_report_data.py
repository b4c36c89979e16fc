"""The sections on ground truths, tests, filters and pass rates, with files written by hand."""

from __future__ import annotations

import json
import math
import re

import pytest

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.report import filters, programs
from pcl_reasoner.report.revisions import read_revisions

SANDBOX = {"seconds": 6.0, "megabytes": 512, "engine": "bubblewrap",
           "python_version": "3.11.2 on x86_64"}  # fmt: skip
PERPLEXITY = {
    "edges": [1.0, 2.0, 4.0, 5.656854, 8.0, 16.0],
    "counts": [5, 90, 3, 1, 1],
    "limit": 4.0,
    "missing": 2,
    "quantiles": {"0.5": 2.5, "1.0": 9.0},
}
RATES = {
    "zero": 4,
    "edges": [tenth / 10 for tenth in range(11)],
    "counts": [0, 3, 0, 0, 0, 2, 0, 0, 0, 1],
    "one": 7,
}


def _line(name, outcome, votes, opinion=None, responses=5, **more):
    line = {"problem_id": name, "problem": "SECRET", "original": "41", "majority": "42"}
    line |= {"votes": votes, "not_compared": 0, "responses": responses, "opinion": opinion}
    return {**line, "outcome": outcome, **more}


LINES = [
    _line("p0", "agreed", {"41": 5}),
    *(_line(f"r{i}", "revised", {"41": 1, "42": 3}, "42.0") for i in range(8)),
    _line("k0", "kept_disputed", {"42": 3}, "x" * 130, not_compared=1),
    _line("n0", "no_majority", {"1": 2, "2": 2}),
    _line("n1", "no_majority", {}),
    _line("n2", "no_majority", {"1": 1}),
    _line("n3", "no_majority", {"1": 1, "2": 1}),
]


def _revise(run):
    outcomes = {"agreed": 1, "revised": 8, "kept_disputed": 1, "no_majority": 4}
    info = {"checked": 14, "outcomes": outcomes, "not_checked": {"chat": 120},
            "opinions": {"asked": 9, "unreadable": 1, "absent": 0}}  # fmt: skip
    run.stage("am/revise", "revise", {"unit": "problems", "read": 133, "kept": 133, "info": info})
    run.jsonl("am/revise", "revisions.jsonl", LINES)


def _tested(run):
    figures = {"tested": 40, "passed_all": 30, "weak_tests": 0,
               "failures": {"time": 1, "wrong": 7, "memory": 2}}  # fmt: skip
    info = {"solutions": figures, "without_solution": 3, "sandbox": SANDBOX}
    counts = {"unit": "problems", "read": 50, "kept": 40, "dropped": {"bad_tests": 10}}
    run.stage("am/check_tests", "check_tests", {**counts, "info": info})
    info = {"programs": {**figures, "weak_tests": 5}}
    run.stage("am/grade", "grade", {"unit": "responses", "read": 9, "kept": 9, "info": info})
    run.json("am/grade", "grading.json", {"sandbox": {**SANDBOX, "engine": "rlimits"}})
    run.stage("am/evaluate", "evaluate", {"unit": "responses", "read": 9, "kept": 9})
    scores = {"benchmarks": {}, "sandbox": {**SANDBOX, **figures, "weak_tests": 6}}
    run.json("am/evaluate", "scores.json", scores)


def _filtered(run):
    mean = {"engine": "model", "trained_tokens": 900, "without_tokens": 2}
    info = {**mean, "log_prob_mean": -math.log(8)}
    run.stage(
        "am/perplexity", "perplexity", {"unit": "responses", "read": 100, "kept": 100, "info": info}
    )
    info = {"failed": {"high_perplexity": 5, "repeated_phrase": 2}, "structure": {}}
    dropped = {"high_perplexity": 5, "repeated_phrase": 1}
    config = {"max_perplexity": 4.0, "repeat": "consecutive", "min_tokens": 20, "times": 4,
              "max_occurrences": 20, "tags": "think_only"}  # fmt: skip
    run.stage(
        "am/tidy",
        "tidy",
        {"unit": "responses", "read": 100, "kept": 94, "dropped": dropped, "info": info},
        identity={"config": config},
    )
    none = {"edges": [1.0, 2.0], "counts": [0], "limit": None, "missing": 100, "quantiles": {}}
    run.json("am/tidy", "histograms.json", {"perplexity": PERPLEXITY, "repeats": none})
    info = {"rates": {"math": RATES}, "not_filtered": {"chat": 3}, "failed_verdicts": 6}
    dropped = {"always_solved": 7, "never_solved": 4}
    run.stage(
        "am/pass_rate",
        "pass_rate",
        {"unit": "problems", "read": 20, "kept": 9, "dropped": dropped, "info": info},
        identity={"config": {"above": 0.0, "below": 1.0, "kinds": ["math", "code"]}},
    )


@pytest.fixture
def am(new_run):
    _revise(new_run)
    _tested(new_run)
    _filtered(new_run)
    return new_run


def test_the_page_shows_the_figures_of_the_stages(am, browser, read_page, tmp_path):
    am.report(tmp_path / "out", recipe={"name": "am", "profile": "laptop"})
    page = (tmp_path / "out" / "report.html").as_uri()
    found = read_page(browser.chromium(browser.find_chromium(), ["--dump-dom"], page))
    assert found.repeated == []
    wanted = {
        "revise.am/revise.checked": "14",
        "revise.am/revise.revised": "8",
        "revise.am/revise.dropped_disputed": "0",
        "revise.am/revise.no_majority.tied": "2",
        "revise.am/revise.opinions.unreadable": "1",
        "revise.am/revise.not_checked.chat": "120",
        "revise.am/revise.truth.r0": "42.0",
        "programs.am/check_tests.bad_tests": "10",
        "programs.am/check_tests.without_solution": "3",
        "programs.am/check_tests.failures.wrong": "7",
        "programs.am/grade.engine": "rlimits",
        "programs.am/evaluate.weak_tests": "6",
        "perplexity.am/perplexity.mean": "8",
        "filters.am/tidy.repeated_phrase.failed": "2",
        "filters.am/tidy.repeated_phrase.dropped": "1",
        "filters.am/tidy.perplexity.limit": "4",
        "filters.am/tidy.perplexity.quantile.0.5": "2.5",
        "filters.am/tidy.perplexity.from.8": "1",
        "pass_rates.am/pass_rate.dropped.always_solved": "7",
        "pass_rates.am/pass_rate.math.problems": "17",
        "pass_rates.am/pass_rate.failed_verdicts": "6",
    }
    assert {name: found.texts.get(name) for name in wanted} == wanted
    # Seven of eight revised problems would be too many; the problems' texts are on another page.
    assert "revise.am/revise.truth.r6" not in found.texts
    assert ("href", "../new_runs/am/revise/audit.html") in found.attributes
    html = (tmp_path / "out" / "report.html").read_text()
    assert "SECRET" not in html
    assert "3.11.2 on x86_64" in html and "Responses by repeats" not in html


def test_text_of_answers_and_failures_is_never_markup(am, browser, read_page, tmp_path):
    evil = am.evil
    am.jsonl("am/revise", "revisions.jsonl", [_line(evil, "revised", {evil: 3}, evil)])
    am.json("am/grade", "grading.json", {"sandbox": {**SANDBOX, "engine": evil}})
    am.report(tmp_path / "out", recipe={"name": "am", "profile": "laptop"})
    page = (tmp_path / "out" / "report.html").as_uri()
    found = read_page(browser.chromium(browser.find_chromium(), ["--dump-dom"], page))
    assert not found.tags & {"script", "img"}
    assert found.texts["programs.am/grade.engine"] == evil


def test_a_run_without_these_stages_has_none_of_the_sections(run, tmp_path):
    run.report(tmp_path / "out")
    html = (tmp_path / "out" / "report.html").read_text()
    for section in ("ground-truths", "programs", "filters", "pass-rates", "graded"):
        assert f'id="{section}"' not in html
    assert "By kind of problem" not in html


def test_unsafe_sandboxes_and_weak_tests_are_warnings(am, tmp_path):
    am.report(tmp_path / "out", recipe={"name": "am", "profile": "laptop"})
    unsafe, weak = am.context.warnings
    assert unsafe.startswith("am/grade: programs ran with the engine rlimits, which is unsafe")
    # grade warns about its own weak tests; check_tests had none.
    assert weak.startswith("am/evaluate: 6 tests passed in the candidate's interpreter")


def test_revisions_are_shown_by_outcome_and_why_there_is_no_majority(am):
    found = read_revisions(am.inputs["am/revise"])["revisions"]
    names = [one["problem_id"] for one in found["examples"]]
    assert names == ["r0", "r1", "r2", "r3", "r4", "r5", "k0", "n0", "n1", "n2"]
    # Two of two answers equally often; none; one of five.
    assert found["no_majority"] == {"without an answer": 1, "tied": 2, "with too few answers": 1}
    first, disputed = found["examples"][0], found["examples"][6]
    assert (first["original"], first["truth"], first["opinion"]) == ("41", "42.0", "42.0")
    assert first["votes"] == [["42", 3], ["41", 1]]
    assert first["without_answer"] == 1
    # Its ground truth stays, and one answer could not be compared: 5 − 3 − 1.
    assert (disputed["truth"], disputed["without_answer"]) == ("41", 1)
    assert disputed["opinion"] == "x" * 120 + "…"


def test_a_changed_line_of_revisions_is_named(am):
    path = am.inputs["am/revise"] / "revisions.jsonl"
    path.write_text(json.dumps(LINES[0]) + "\n{\n")
    with pytest.raises(StageError, match=r"revisions\.jsonl, line 2: not JSON"):
        read_revisions(am.inputs["am/revise"])


def test_a_bar_of_programs_has_the_shares_of_outcomes():
    row = {"key": "am/grade", "tested": 40, "passed": 30}
    failures = {"wrong": 4, "exception": 1, "compile": 1, "time": 3, "new_reason": 1}
    svg = str(programs.program_chart([{**row, "failures": failures}]))
    # Of 40: 30, 4, 3 (one of them for a reason that this page does not know) and 3.
    titles = re.findall("<title>am/grade: (.*?)</title>", svg)
    assert titles == [
        "all tests passed 75.0 %",
        "wrong value 10.0 %",
        "error 7.5 %",
        "limit reached 7.5 %",
    ]
    assert programs.program_chart([{"tested": 0}]) is None


def test_the_numbers_from_a_value_upwards_help_to_choose_a_threshold():
    # The median is 2.5, and the edges that are whole numbers and above it are 4, 8.
    assert filters.reached(PERPLEXITY) == [[4.0, 5], [8.0, 1]]
    assert filters.reached({**PERPLEXITY, "quantiles": {"0.5": 1.5}})[0] == [2.0, 95]


def test_the_threshold_is_a_line_between_the_bars():
    svg = str(filters.filter_chart({"name": "perplexity", **PERPLEXITY}))
    (line,) = re.findall(r'<line class="threshold" x1="(.*?)"', svg)
    # Ticks 1, 2, 5, 10, 20 on 284 pixels from 52: 52 + 284 · log 4 / log 20.
    assert float(line) == pytest.approx(52 + 284 * math.log(4) / math.log(20), abs=0.06)
    assert "<title>2–4: 90</title>" in svg
    none = {"name": "perplexity", **PERPLEXITY, "limit": None}
    assert "threshold" not in str(filters.filter_chart(none))


@pytest.mark.parametrize(
    ("config", "rules"),
    [
        ({"max_perplexity": None, "repeat": "none", "tags": "think_answer"}, ["–", "–"]),
        (
            {"max_perplexity": 20.0, "repeat": "count", "min_tokens": 20, "max_occurrences": 9},
            ["has a perplexity above 20", "has a phrase of 20 tokens more than 9 times"],
        ),
    ],
)
def test_filters_are_described_by_their_settings(config, rules):
    manifest = {"stage": "tidy", "counts": {}, "identity": {"config": config}}
    (found,) = filters.filtered([StageRecord("am", "tidy", manifest)])
    assert [one["rule"] for one in found["filters"]][:2] == rules


def test_bars_of_dropped_pass_rates_have_the_other_colour():
    bins = filters.rate_bins(RATES, 0.0, 1.0)
    assert [one["count"] for one in bins] == [4, *RATES["counts"], 7]
    assert [one["name"] for one in bins if one["dropped"]] == [
        "0: never solved",
        "1: always solved",
    ]
    narrow = filters.rate_bins(RATES, 0.2, 0.9)
    # 0 to 0.1 and 0.1 to 0.2 are at or under 0.2, 0.9 to 1 is not under 0.9.
    assert [one["dropped"] for one in narrow] == [True] * 3 + [False] * 7 + [True] * 2
    svg = str(filters.rate_chart("math", bins))
    assert "<title>0: never solved: dropped 4.0 problems</title>" in svg
    assert "<title>from 0.1 to 0.2: kept 3.0 problems</title>" in svg
