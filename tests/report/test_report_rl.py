"""The page's section on on-policy training, with two stages of a few rounds."""

from __future__ import annotations

import json

import pytest
from rl_artifact import probe, response, round_row, write_rl

RECIPE = {"name": "am", "profile": "laptop"}
KINDS = ["math", "math", "code", "code"]
WRONG = {"passed": 0, "total": 5, "weak": 0, "case": 0, "reason": "wrong", "text": "<7>"}
SAMPLING = {"temperature": 0.6, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1}


def _rl(run, name, config, origins, last):
    counts = {"unit": "responses", "read": 8, "kept": 8, "info": {"rounds": 2}}
    key = f"am/{name}"
    folder = run.stage(key, "rl", counts, identity={"config": config}, origins=origins)
    rows = [
        response(("m1", 0), 0, 1.0),
        response(("m2", 1), 0, -1.0, response=run.evil),
        response(("c1", 0), 1, 1.0),
        response(("c2", 1), 1, -1.0, detail=json.dumps(WRONG), response=f"def f(): {run.evil}"),
    ]
    rounds = [round_row(i, {"math": (2, 1.0), "code": (2, 1.0)}, overlong=i) for i in (0, 1)]
    write_rl(folder, rounds, rows, [("m1", 0), ("c1", 1)])
    run.jsonl(key, "probe.jsonl", [probe(0, KINDS, [1, 3, 0, 2]), probe(2, KINDS, last)])
    fit = {"rounds": [0, 2], "intercept": 0.4, "slope": 0.05}
    plateau = {"stopped": "max_rounds", "rounds": 2, "gain": 0.1, "se": 0.04, "fit": fit}
    run.json(key, "plateau.json", plateau)
    run.jsonl(key, "metrics.jsonl", [{"step": i, "loss": 0.0, "grad_norm": 0.2} for i in (1, 2)])
    run.jsonl(key, "seconds.jsonl", [{"round": 0, "sample": 2.0, "train": 1.0}])


def _problems(run, key):
    checks = json.dumps({"tests": {"cases": [{"args": ["<b>"], "out": 2}]}})
    names = {"m1": "math", "m2": "math", "c1": "code", "c2": "code"}
    rows = [
        {"problem_id": name, "problem": f"Add. {run.evil}", "ground_truth": "8", "kind": kind}
        for name, kind in names.items()
    ]
    run.parquet(key, "clean.parquet", [{**row, "checks": checks} for row in rows])


@pytest.fixture
def am(new_run):
    rates = {"zero": 1, "edges": [0.0, 1.0], "counts": [2], "one": 0}
    counts = {"unit": "problems", "read": 6, "kept": 4, "dropped": {"never_solved": 2}}
    counts["info"] = {"rates": {"math": rates, "code": rates}}
    new_run.stage("am/pass_rate", "pass_rate", counts)
    _problems(new_run, "am/pass_rate")
    on_policy = {"off_policy": "refused", "overlong": "zero", "plateau": {"min_gain": 0.01}}
    allowed = {**on_policy, **SAMPLING, "off_policy": "allowed"}
    origins = {"problems": "am/pass_rate"}
    _rl(new_run, "rl_1", on_policy, origins, [3, 4, 2, 2])
    kinds = {"before": 2, "removed": 0, "kept": 2, "not_seen": 0}
    counts = {"unit": "problems", "read": 4, "kept": 3, "dropped": {"solved_always": 1}}
    gone = {**kinds, "removed": 1, "kept": 1}
    counts["info"] = {"kinds": {"math": gone, "code": kinds}}
    new_run.stage("am/solved", "solved", counts, origins={**origins, "rounds": "am/rl_1"})
    _problems(new_run, "am/solved")
    _rl(new_run, "rl_2", allowed, {"problems": "am/solved"}, [3, 4, 4, 4])
    return new_run


def _page(run, output, **config):
    run.report(output, recipe=RECIPE, **config)
    return (output / "report.html").read_text()


def test_the_page_shows_both_stages(am, browser, read_page, tmp_path):
    am.report(tmp_path / "out", recipe=RECIPE)
    page = (tmp_path / "out" / "report.html").as_uri()
    found = read_page(browser.chromium(browser.find_chromium(), ["--dump-dom"], page))
    assert found.repeated == []
    shown = found.texts
    assert (shown["rl.am/rl_1.rounds"], shown["rl.am/rl_1.ended"]) == ("2", "max_rounds")
    assert (shown["rl.am/rl_1.gain"], shown["rl.am/rl_1.gain_se"]) == ("+10.0", "4.0")
    assert (shown["rl.am/rl_1.responses"], shown["rl.am/rl_1.overlong"]) == ("8", "1")
    assert shown["rl.am/rl_1.off_policy"] == "refused"
    assert shown["rl.am/rl_2.off_policy"] == "allowed"
    # Shares 1/4 3/4 0 1/2, and 3/4 1 1 1.
    assert shown["rl.am/rl_2.held_out.all.first"] == "37.5"
    assert shown["rl.am/rl_2.held_out.all.last"] == "93.8"
    # Differences 1/2 1/4: the standard deviation is 1/4 / sqrt(2), over sqrt(2).
    assert shown["rl.am/rl_2.held_out.math.gain"] == "+37.5"
    assert shown["rl.am/rl_2.held_out.math.gain_se"] == "12.5"
    assert shown["rl.am/rl_1.failures.wrong"] == "1"
    # 1 + 2 of each kind were rated, and 2 were kept.
    assert shown["pool.am/pass_rate.math.kept"] == "2"
    assert shown["pool.am/pass_rate.math.removed"] == "−1"
    assert shown["pool.am/rl_1.code.asked"] == "1"
    assert shown["pool.am/rl_2.math.removed"] == "−1"
    assert shown["warnings.count"] == "1"
    # Every round reads problems again: what was lost of a kind is not known.
    assert "kinds.am/rl_1.math.kept" in shown and "kinds.am/rl_1.math.lost" not in shown


def test_off_policy_sampling_is_among_the_warnings(am, tmp_path):
    html = _page(am, tmp_path / "out")
    warnings = html[html.index('<section id="warnings">') : html.index('<section id="funnel">')]
    assert "am/rl_2: off_policy is allowed" in warnings and "temperature 0.6" in warnings
    assert any("off_policy is allowed" in text for text in am.context.warnings)


def test_few_correct_responses_before_it_are_no_warning(am, tmp_path):
    am.stage("am/grade", "grade", {"unit": "responses", "read": 2, "kept": 2})
    verdicts = [{"problem_id": "m1", "sample_index": i, "verdict": "incorrect"} for i in (0, 1)]
    am.parquet("am/grade", "verdicts.parquet", verdicts)
    _page(am, tmp_path / "out")
    assert not any("graded responses are correct" in text for text in am.context.warnings)


def test_responses_are_shown_with_their_reward_and_the_failing_test(am, tmp_path):
    html = _page(am, tmp_path / "out", problems_shown=2)
    section = html[html.index('<section id="rl">') : html.index('<section id="problems">')]
    assert am.evil not in section and "&lt;script&gt;" in section
    assert "advantage −1.00</span> am/rl_" in section
    assert "incorrect, reward 0, 10 tokens" in section
    assert "test 1: wrong value, got <code>&lt;7&gt;</code>" in section
    assert "[&#34;&lt;b&gt;&#34;]" in section
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    # Of each kind, the best and the worst.
    drawn = [(one["problem_id"], one["advantage"]) for one in summary["rl_responses"]]
    assert drawn == [("m1", 1.0), ("m2", -1.0), ("c1", 1.0), ("c2", -1.0)]


def test_seconds_are_only_on_the_page(am, tmp_path):
    _page(am, tmp_path / "one")
    am.jsonl("am/rl_1", "seconds.jsonl", [{"round": 0, "sample": 77.0}])
    html = _page(am, tmp_path / "two")
    assert "rl_1 round 0: sample and grade 77 s" in html
    first, second = ((tmp_path / name / "summary.json").read_bytes() for name in ("one", "two"))
    assert first == second


def test_updates_are_not_shown_as_another_training(am, tmp_path):
    html = _page(am, tmp_path / "out")
    assert '<section id="training">' not in html
    assert "am/rl_1: figures of the updates" in html and "Gradient norm by step" in html
    # The probes have charts of their own, by round.
    assert "Probe: correct" not in html


def test_an_unfinished_stage_shows_nothing(am, tmp_path):
    for name in ("rl_1", "rl_2"):
        (am.inputs[f"am/{name}"] / "manifest.json").unlink()
    html = _page(am, tmp_path / "out")
    assert '<section id="rl">' not in html and "off_policy" not in html
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["rl"] == summary["rl_pool"] == summary["rl_responses"] == []


def test_a_run_without_on_policy_training_shows_nothing_of_it(run, tmp_path):
    run.report(tmp_path / "out")
    assert '<section id="rl">' not in (tmp_path / "out" / "report.html").read_text()
