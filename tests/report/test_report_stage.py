from __future__ import annotations

import json
import re
import struct

import pytest

from pcl_reasoner.core.errors import StageError


def _number(text: str) -> float:
    return float(text.replace("\u202f", "").replace("\u2212", "-").split()[0])


def _manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def _open(run, browser, read_page, output):
    run.report(output)
    page = (output / "report.html").as_uri()
    html = browser.chromium(browser.find_chromium(), ["--dump-dom"], page)
    return read_page(html), html


def test_page_shows_the_numbers_of_the_artifacts(run, browser, read_page, tmp_path):
    page, _ = _open(run, browser, read_page, tmp_path / "out")
    shown = page.texts
    assert page.repeated == []
    for key, folder in run.inputs.items():
        counts = _manifest(folder)["counts"]
        name = key.removeprefix("v15_opg/")
        assert _number(shown[f"funnel.{name}.read"]) == counts["read"]
        assert _number(shown[f"funnel.{name}.kept"]) == counts["kept"]
        for reason, count in counts["dropped"].items():
            assert _number(shown[f"funnel.{name}.dropped.{reason}"]) == count
        assert shown[f"fingerprints.{key}"] == _manifest(folder)["fingerprint"][:12]
    paper = ["convert", "difficulty", "lengths", "unique", "sample", "select", "cap"]
    figures = [2044407, 855015, 34000, 6068, 48512, 30215, 27174]
    assert [_number(shown[f"paper.{stage}.1"]) for stage in paper] == figures
    assert [_number(shown[f"paper.grade.{i}"]) for i in (1, 2)] == [22990, 25522]
    # Beside what is published stands what this run counted of it, where it did.
    assert [_number(shown[f"here.select.{name}"]) for name in ("mixed_rows", "kept")] == [79, 76]
    assert not any(key.startswith(("here.grade", "here.select.absent")) for key in shown)
    # 20 problems of 4 responses, of which the last is incorrect.
    assert _number(shown["grades.v15_opg/grade.correct"]) == 60
    assert _number(shown["grades.v15_opg/grade.no_box"]) == 20


def test_page_shows_contamination_lengths_packing_and_training(run, browser, read_page, tmp_path):
    page, _ = _open(run, browser, read_page, tmp_path / "out")
    shown = page.texts
    check = "contamination.v15_opg/contamination"
    assert _number(shown[f"{check}.problems"]) == 502
    assert _number(shown[f"{check}.removed"]) == 2
    assert _number(shown[f"{check}.rule.embedding+ngrams"]) == 1
    assert _number(shown[f"{check}.rule.ngrams"]) == 1
    assert _number(shown[f"{check}.sweep.0.70.with_ngrams"]) == 9
    assert _number(shown[f"{check}.sweep.0.90.embedding"]) == 1
    # Upstream parsed its threshold and then used another one.
    assert _number(shown[f"{check}.setting.threshold"]) == 0.9
    histogram = json.loads((run.inputs["v15_opg/lengths"] / "histogram.json").read_text())
    total = sum(histogram["rows"]["counts"])
    assert _number(shown["lengths.v15_opg/lengths.rows.total"]) == total
    assert _number(shown["lengths.v15_opg/lengths.rows.not_tokenised"]) == 1800
    assert "lengths.v15_opg/lengths.problems.not_tokenised" not in shown
    counted = shown["lengths.v15_opg/lengths.rows.counted_by"]
    assert counted == "counted by fastokens, 7 of 6200 checked"
    assert _number(shown["packing.v15_opg/pack.fill"]) == 97.3
    assert _number(shown["packing.v15_opg/pack.tokens"]) == 254106
    assert _number(shown["packing.v15_opg/pack.segments_per_row.4"]) == 414
    # 10 correct and 6 incorrect a step; p goes 0.80 -> 0.92 in 70 steps, so the first seven have a
    # mean of 0.80 + 0.12 * 3/69 and the last seven of 0.92 - 0.12 * 3/69.
    assert _number(shown["training.v15_opg/train.correct_share"]) == 62.5
    assert _number(shown["training.v15_opg/train.correct_p.first"]) == 0.8052
    assert _number(shown["training.v15_opg/train.correct_p.last"]) == 0.9148
    assert _number(shown["training.v1_sft/train.steps"]) == 515
    assert "training.v1_sft/train.correct_share" not in shown
    assert shown["choices.v15_opg.schedule"] == "script"
    assert shown["versions.mindspore"] == "2.7.2"


def test_packing_stages_are_columns_of_one_table_and_bars_of_one_chart(run, tmp_path):
    other = {"rows": 2, "seq_length": 100, "tokens": 150, "trained_tokens": 60, "dropped": {}}
    run.stage("v1_sft/pack", "pack", {"read": 3, "kept": 3})
    run.json("v1_sft/pack", "accounting.json", other)
    run.report(tmp_path / "out")
    html = (tmp_path / "out" / "report.html").read_text()
    table = html[html.index("<th>Account</th>") : html.index("Rows by number of segments")]
    lines = [re.findall(r">([^<>]+)<", line) for line in table.splitlines()]
    assert lines[0] == ["Account", "v15_opg/pack", "v1_sft/pack"]
    shown = {label: cells for label, *cells in filter(None, lines[1:])}
    assert shown["Segments dropped"] == ["6", "0"]
    assert shown["– dropped, reason over length"] == ["6", "–"]
    # 510 rows of 512 tokens, less 254106; 2 rows of 100, less 150.
    assert shown["Tokens of padding"] == ["7\u202f014", "50"]
    assert shown["Share of row tokens that belong to segments"] == ["97.3 %", "–"]
    steps = [label for label in shown if label.startswith("Steps")]
    assert steps == [f"Steps per epoch, global batch of {size}" for size in (4, 32)]
    assert "<title>v1_sft/pack: trained on 30.0 %</title>" in html
    assert "<title>v1_sft/pack: not trained on 45.0 %</title>" in html
    assert "<title>v1_sft/pack: padding 25.0 %</title>" in html


def test_page_shows_scores_verdict_and_what_was_expected(run, browser, read_page, tmp_path):
    page, html = _open(run, browser, read_page, tmp_path / "out")
    shown = page.texts
    for name in ("evaluate_before", "evaluate_after"):
        score = json.loads((run.inputs[f"v15_opg/{name}"] / "scores.json").read_text())
        score = score["benchmarks"]["heldout"]
        mark = f"scores.v15_opg/{name}.heldout"
        for figure in ("avg_at_n", "pass_at_n", "maj_at_n"):
            assert _number(shown[f"{mark}.{figure}"]) == round(100 * score[figure], 1)
        assert _number(shown[f"{mark}.mean_length"]) == score["mean_length"]
        assert _number(shown[f"{mark}.low"]) == round(100 * score["interval"][0], 1)
        assert _number(shown[f"{mark}.high"]) == round(100 * score["interval"][1], 1)
    assert _number(shown["verdict.heldout.before"]) == 54.4
    assert _number(shown["verdict.heldout.after"]) == 90.3
    # 1.96 * sqrt(1.5² + 1.4²) = 4.02 points around 35.9.
    assert _number(shown["verdict.heldout.gain"]) == 35.9
    assert "+31.9 to +39.9" in html
    assert shown["expect.evaluate_after.heldout.avg_at_8.verdict"] == "met"
    assert shown["expect.evaluate_after.pass_at_8.verdict"] == "below"
    assert shown["expect.gain.verdict"] == "met"
    assert "says nothing about AIME" in html


def test_the_gain_is_of_the_same_problems_where_scores_by_problem_are_there(run, tmp_path):
    for name, correct in (("evaluate_before", [0, 2, 4]), ("evaluate_after", [2, 6, 6])):
        rows = [
            {"benchmark": "heldout", "id": f"q{i}", "n": 8, "correct": r}
            for i, r in enumerate(correct)
        ]
        run.parquet(f"v15_opg/{name}", "per_problem.parquet", rows)
    run.report(tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    (pair,) = summary["comparison"]
    # Differences 2/8, 4/8, 2/8: standard deviation 1/8 · sqrt(4/3), over sqrt(3): 1/12.
    assert pair["paired"]
    assert pair["gain_error"] == pytest.approx(1 / 12)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "computed from the difference per problem" in page


def test_the_published_profile_makes_no_excuse_for_a_small_task(run, tmp_path):
    run.report(tmp_path / "out", recipe={**run.recipe, "profile": "paper"})
    html = (tmp_path / "out" / "report.html").read_text()
    assert "says nothing about AIME" not in html
    assert '<strong class="badge">PAPER</strong>' in html


def test_text_from_data_is_never_markup(run, browser, read_page, tmp_path):
    recipe = {**run.recipe, "title": run.evil, "choices": {run.evil: run.evil}}
    for key in ("v15_opg/convert", "v15_opg/evaluate_after"):
        manifest = _manifest(run.inputs[key])
        manifest |= {"warnings": [run.evil], "host": run.evil}
        manifest["identity"] = {"config": {"system": run.evil}}
        run.json(key, "manifest.json", manifest)
    scores = json.loads((run.inputs["v15_opg/evaluate_after"] / "scores.json").read_text())
    run.json(
        "v15_opg/evaluate_after",
        "scores.json",
        {"benchmarks": {run.evil: scores["benchmarks"]["heldout"]}},
    )
    run.recipe = recipe
    output = tmp_path / "out"
    run.report(output, recipe=recipe)
    page = read_page(
        browser.chromium(browser.find_chromium(), ["--dump-dom"], (output / "report.html").as_uri())
    )
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    names = {name for name, _ in page.attributes}
    assert not names & {"src", "href"}
    assert not any(name.startswith("on") for name in names)
    urls = {value for _, value in page.attributes if value and "://" in value}
    assert urls == {"http://www.w3.org/2000/svg"}


def test_a_partial_run_is_shown_as_far_as_it_goes(run, browser, read_page, tmp_path):
    for key in ("v15_opg/train", "v15_opg/evaluate_after", "v15_opg/contamination"):
        (run.inputs[key] / "manifest.json").unlink()
    run.inputs["v15_opg/export"] = tmp_path / "nowhere"
    counts = run.report(tmp_path / "out")
    assert (counts.read, counts.kept, counts.dropped) == (15, 11, {"not_run": 4})
    uri = (tmp_path / "out" / "report.html").as_uri()
    html = browser.chromium(browser.find_chromium(), ["--dump-dom"], uri)
    shown = read_page(html).texts
    assert "funnel.train.kept" not in shown
    assert _number(shown["funnel.pack.kept"]) == 1944
    assert "verdict.heldout.before" not in shown
    assert _number(shown["verdict.heldout.after"]) == 54.4
    assert "There is one evaluation, so there is no comparison." in html
    assert shown["expect.gain.verdict"] == "not measured"


def test_nothing_has_run_yet(run, tmp_path):
    run.inputs = {"v15_opg/convert": tmp_path / "nowhere"}
    counts = run.report(tmp_path / "out", recipe={})
    assert (counts.read, counts.kept) == (1, 0)
    assert "No evaluation has run yet" in (tmp_path / "out" / "report.html").read_text()


def test_a_good_run_has_no_warning(run, tmp_path):
    counts = run.report(tmp_path / "out")
    assert (counts.unit, counts.read, counts.kept) == ("stages", len(run.inputs), len(run.inputs))
    assert run.context.warnings == []
    assert 'data-check="warnings.count">0<' in (tmp_path / "out" / "report.html").read_text()


def test_warns_when_fewer_than_half_of_the_responses_are_correct(run, tmp_path):
    run.train((0.80, 0.92), correct=9, incorrect=11)
    run.report(tmp_path / "out")
    (warning,) = run.context.warnings
    assert warning.startswith("v15_opg/train: only 45.0% of the responses trained on are correct")
    assert "only 45.0% of the responses" in (tmp_path / "out" / "report.html").read_text()


def test_warns_when_p_of_correct_answers_falls(run, tmp_path):
    run.train((0.90, 0.78), correct=10, incorrect=6)
    run.report(tmp_path / "out")
    (warning,) = run.context.warnings
    assert "p of correct answers fell from 0.8948" in warning
    assert "to 0.7852" in warning


def test_warnings_of_stages_stand_before_the_funnel(run, tmp_path):
    manifest = _manifest(run.inputs["v15_opg/pack"])
    run.json("v15_opg/pack", "manifest.json", {**manifest, "warnings": ["six rows were too long"]})
    run.report(tmp_path / "out")
    html = (tmp_path / "out" / "report.html").read_text()
    assert 0 < html.index("six rows were too long") < html.index('id="funnel"')
    assert run.context.warnings == []


def test_summary_does_not_depend_on_when_and_where(run, tmp_path):
    run.report(tmp_path / "first")
    run.report(tmp_path / "again")
    for name in ("report.html", "summary.json"):
        first, again = (tmp_path / folder / name for folder in ("first", "again"))
        assert first.read_bytes() == again.read_bytes()
    for key, folder in run.inputs.items():
        moved = {"host": "ws2", "seconds": 99.0, "git_commit": "f" * 12, "began_at": "later"}
        run.json(key, "manifest.json", {**_manifest(folder), **moved})
    run.report(tmp_path / "elsewhere")
    summary = (tmp_path / "elsewhere" / "summary.json").read_bytes()
    assert summary == (tmp_path / "first" / "summary.json").read_bytes()
    html = (tmp_path / "elsewhere" / "report.html").read_text()
    assert html == (tmp_path / "first" / "report.html").read_text().replace("ws1", "ws2").replace(
        "12.3 s", "2 min"
    ).replace("0123456789ab", "f" * 12).replace("2025-11-20T12:00:00+0000", "later")


def test_problems_are_drawn_by_seed_with_their_grades(run, tmp_path):
    run.report(tmp_path / "out", problems_shown=3, seed=5)
    run.report(tmp_path / "other", problems_shown=3, seed=6)
    run.report(tmp_path / "all", problems_shown=100, seed=5)
    problems, other, every = (
        json.loads((tmp_path / name / "summary.json").read_text())["problems"]
        for name in ("out", "other", "all")
    )
    assert len(problems) == 3 and len(every) == 20
    assert [one["problem_id"] for one in problems] != [one["problem_id"] for one in other]
    for one in every:
        index = int(one["problem_id"], 16)
        assert one["problem"] == f"Ben has {index} books.\n{run.evil}"
        assert one["ground_truth"] == str(index)
        assert [response["sample_index"] for response in one["responses"]] == [0, 1, 2, 3]
        verdicts = [response["verdict"] for response in one["responses"]]
        assert verdicts == ["correct", "correct", "correct", "no_box"]
        # The first problem was not selected.
        assert all(response["selected"] == (index > 0) for response in one["responses"])
        assert all("\\boxed{7}" in response["response"] for response in one["responses"])


def test_a_run_that_grades_nothing_shows_no_problems(run, tmp_path):
    """V1's: contamination has problems, and there is no verdict to draw some by."""
    run.inputs = {
        key: folder
        for key, folder in run.inputs.items()
        if key not in ("v15_opg/sample", "v15_opg/grade", "v15_opg/select")
    }
    run.report(tmp_path / "out", problems_shown=3)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["problems"] == []


def test_before_the_selection_no_response_is_said_to_be_left_out(run, tmp_path):
    run.report(tmp_path / "out", problems_shown=100)
    (run.inputs["v15_opg/select"] / "manifest.json").unlink()
    run.report(tmp_path / "before", problems_shown=100)
    out, before = ((tmp_path / name / "report.html").read_text() for name in ("out", "before"))
    # Of the 20 problems one is not selected, with four responses.
    assert out.count("not selected for training") == 4
    assert "not selected for training" not in before


def test_a_changed_file_is_an_error_that_names_its_line(run, tmp_path):
    path = run.inputs["v15_opg/train"] / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2\n', encoding="utf-8")
    with pytest.raises(StageError, match=r"metrics\.jsonl, line 2: not JSON"):
        run.report(tmp_path / "out")


def test_half_a_surrogate_pair_does_not_stop_the_report(run, tmp_path):
    hits = [{"rule": "embedding+ngrams", "cosine": 1.0, "problem": "\ud835"}]
    run.jsonl("v15_opg/contamination", "hits.jsonl", hits)
    run.report(tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert summary["contamination"][0]["examples"][0]["problem"] == "?"


@pytest.mark.parametrize(("width", "shown"), [(1280, 1280), (400, 500)])
def test_a_screenshot_can_be_taken(run, browser, tmp_path, width, shown):
    run.report(tmp_path / "out")
    image = tmp_path / "page.png"
    page = tmp_path / "out" / "report.html"
    browser.screenshot(browser.find_chromium(), page, image, width, 300, 1)
    header = image.read_bytes()[:24]
    assert header[:4] == b"\x89PNG"
    assert struct.unpack(">II", header[16:]) == (shown, 300)
