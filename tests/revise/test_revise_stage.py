"""The stage revise on real files: planted cases, recorded opinions, and what is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grade_helpers import correct, write_responses
from revise_helpers import (
    PLANTED,
    plant,
    row,
    run_revise,
    third_model,
    write_problem_rows,
    write_teacher,
)

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.revise.config import ReviseConfig
from pcl_reasoner.verifiers import equivalence

KEEP_ALL = ReviseConfig(max_missing=1.0)
FOUND = {
    **{f"right{i}": "agreed" for i in range(4)},
    **{f"wrong{i}": "revised" for i in range(8)},
    **{f"upheld{i}": "kept_upheld" for i in range(2)},
    **{f"third{i}": "kept_disputed" for i in range(2)},
}


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def rows(output: Path) -> dict[str, dict[str, Any]]:
    return {one["problem_id"]: one for one in pq.read_table(output / "clean.parquet").to_pylist()}


def record(file: Path, opinions: dict[str, str | None]) -> Path:
    texts = (json.dumps({"problem_id": n, "answer": a}) + "\n" for n, a in opinions.items())
    file.write_text("".join(texts))
    return file


def test_all_planted_cases_are_found_with_a_server(tmp_path: Path) -> None:
    inputs, output = plant(tmp_path), tmp_path / "revise"
    with third_model("opinion") as (url, bodies):
        counts, _ = run_revise(inputs, output, opinion_urls=[url])
    table = rows(output)
    assert {name: one["revision"] for name, one in table.items()} == FOUND
    assert list(table) == list(PLANTED)  # in the problems' order
    for name, one in table.items():
        original, _, opinion = PLANTED[name]
        assert one["original_ground_truth"] == original
        # The third model's text, 13.0, not the majority's, 13.
        assert one["ground_truth"] == (opinion if name.startswith("wrong") else original)
    assert (counts.unit, counts.read, counts.kept, counts.dropped) == ("problems", 16, 16, {})
    assert counts.info == {
        "checked": 16,
        "outcomes": {"agreed": 4, "kept_disputed": 2, "kept_upheld": 2, "revised": 8},
        "opinions": {"asked": 12, "asked_again": 0, "failed": 0, "unreadable": 0, "absent": 0},
    }
    assert len(bodies) == 12  # nothing is asked about an undisputed ground truth
    assert sorted(file.name for file in output.iterdir()) == [
        *("audit.html", "clean.parquet", "opinion.json", "opinions.jsonl", "revisions.jsonl"),
    ]


def test_revisions_and_opinions_are_shown(tmp_path: Path) -> None:
    inputs, output = plant(tmp_path), tmp_path / "revise"
    with third_model() as (url, _):
        run_revise(inputs, output, opinion_urls=[url])
    by_name = {line["problem_id"]: line for line in lines(output / "revisions.jsonl")}
    assert list(by_name) == list(PLANTED)
    assert by_name["wrong3"] == {
        "problem_id": "wrong3",
        "problem": "Problem wrong3?",
        "original": "3",
        "majority": "13",
        "votes": {"13": 3, "3": 1},
        "not_compared": 0,
        "responses": 4,
        "opinion": "13.0",
        "outcome": "revised",
    }
    assert by_name["right0"]["votes"] == {"0": 2, "99": 1}
    opinions = lines(output / "opinions.jsonl")
    assert [one["problem_id"] for one in opinions] == sorted(n for n in PLANTED if n[0] != "r")
    assert opinions[0] == {
        "problem_id": "third0",
        "answer": "20",
        "text": "<think>\\boxed{7}?</think>It is \\boxed{20}.",
        "asked": 1,
    }
    told = json.loads((output / "opinion.json").read_text())
    assert (told["opinion_model"], told["opinion_temperature"]) == ("opinion", 0.0)
    assert [one["url"] for one in told["servers"]] == [url]


def test_recorded_opinions_give_the_same_table(tmp_path: Path) -> None:
    inputs = plant(tmp_path)
    with third_model() as (url, _):
        run_revise(inputs, tmp_path / "server", opinion_urls=[url])
    # What one run asked, another run can read.
    inputs["opinion"] = tmp_path / "server" / "opinions.jsonl"
    counts, _ = run_revise(inputs, tmp_path / "recorded")
    assert rows(tmp_path / "recorded") == rows(tmp_path / "server")
    assert counts.info["opinions"] == {"recorded": 12, "unreadable": 0, "absent": 0}
    # As can the artifact of a stage `sample` with another model.
    sampled = [(n, 0, correct(o or ""), "stop", 4) for n, (_, _, o) in PLANTED.items() if o]
    inputs["opinion"] = write_responses(tmp_path / "other", sampled)
    run_revise(inputs, tmp_path / "sampled")
    assert rows(tmp_path / "sampled") == rows(tmp_path / "server")


def test_without_a_third_model_the_stage_says_what_to_do(tmp_path: Path) -> None:
    inputs, output = plant(tmp_path), tmp_path / "revise"
    with pytest.raises(StageError, match="12 ground truths are disputed.*opinion_urls.*opinion: n"):
        run_revise(inputs, output)
    asked = lines(output / "disputed.jsonl")
    assert asked[0] == {
        "problem_id": "wrong0",
        "problem": "Problem wrong0?",
        "original": "0",
        "majority": "10",
        "votes": {"10": 3, "0": 1},
        "answer": None,
    }
    # The unfilled file has no answers, and the filled one is an input.
    inputs["opinion"] = output / "disputed.jsonl"
    with pytest.raises(StageError, match="12 ground truths are disputed"):
        run_revise(inputs, tmp_path / "unfilled")
    filled = [{**one, "answer": PLANTED[one["problem_id"]][2]} for one in asked]
    inputs["opinion"] = tmp_path / "filled.jsonl"
    inputs["opinion"].write_text("".join(f"{json.dumps(one)}\n" for one in filled))
    counts, _ = run_revise(inputs, output)
    assert counts.info["outcomes"]["revised"] == 8
    assert not (output / "disputed.jsonl").exists()


def test_opinion_none_keeps_or_drops_all_disputed_problems(tmp_path: Path) -> None:
    inputs = plant(tmp_path)
    counts, _ = run_revise(inputs, tmp_path / "kept", ReviseConfig(opinion="none"))
    assert counts.info["outcomes"] == {"agreed": 4, "kept_disputed": 12}
    assert counts.info["opinions"] == {"absent": 12}
    table = rows(tmp_path / "kept")
    assert all(one["ground_truth"] == PLANTED[name][0] for name, one in table.items())
    config = ReviseConfig(opinion="none", disputed="drop")
    counts, _ = run_revise(inputs, tmp_path / "dropped", config)
    assert (counts.read, counts.kept, counts.dropped) == (16, 4, {"disputed": 12})
    assert list(rows(tmp_path / "dropped")) == [f"right{i}" for i in range(4)]
    # A dropped problem stays in revisions.jsonl.
    outcomes = [one["outcome"] for one in lines(tmp_path / "dropped" / "revisions.jsonl")]
    assert outcomes.count("dropped_disputed") == 12


def test_no_problem_left_is_an_error_and_keeps_the_opinions(tmp_path: Path) -> None:
    inputs = plant(tmp_path)
    table = pq.read_table(inputs["problems"] / "clean.parquet")
    third = [name.startswith("third") for name in table["problem_id"].to_pylist()]
    pq.write_table(table.filter(pa.array(third)), inputs["problems"] / "clean.parquet")
    config = ReviseConfig(disputed="drop")
    with third_model("opinion") as (url, asked):
        for _ in range(2):
            with pytest.raises(StageError, match="no problem is left of 2 .*'dropped_disputed': 2"):
                run_revise(inputs, tmp_path / "revise", config, opinion_urls=[url])
            assert len([one for one in asked if one["path"].endswith("completions")]) == 2


def test_absent_and_unreadable_opinions_up_to_a_share(tmp_path: Path) -> None:
    inputs = plant(tmp_path)
    opinions = {name: opinion for name, (_, _, opinion) in PLANTED.items() if opinion}
    del opinions["wrong0"]
    inputs["opinion"] = record(tmp_path / "o.jsonl", {**opinions, "wrong1": None})
    config = ReviseConfig(disputed="drop", max_missing=2 / 12)
    counts, _ = run_revise(inputs, tmp_path / "revise", config)
    assert counts.info["opinions"] == {"recorded": 11, "unreadable": 1, "absent": 1}
    assert counts.dropped == {"disputed": 4}  # these two, and the two with a third answer
    assert not {"wrong0", "wrong1", "third0", "third1"} & rows(tmp_path / "revise").keys()
    strict = config.model_copy(update={"max_missing": 0.16})
    with pytest.raises(StageError, match="2 of 12 disputed problems have no readable.*16%"):
        run_revise(inputs, tmp_path / "strict", strict)
    missing = lines(tmp_path / "strict" / "disputed.jsonl")
    assert [one["problem_id"] for one in missing] == ["wrong0", "wrong1"]


def test_a_server_is_asked_only_about_problems_without_a_record(tmp_path: Path) -> None:
    inputs = plant(tmp_path)
    opinions = {name: opinion for name, (_, _, opinion) in PLANTED.items() if opinion}
    opinions["wrong2"] = None  # unreadable, but recorded
    for name in ("wrong0", "third0"):
        del opinions[name]
    inputs["opinion"] = record(tmp_path / "o.jsonl", opinions)
    with third_model() as (url, bodies):
        counts, _ = run_revise(inputs, tmp_path / "revise", KEEP_ALL, opinion_urls=[url])
    asked = [body["messages"][0]["content"].split("?")[0] for body in bodies]
    assert sorted(asked) == ["Problem third0", "Problem wrong0"]
    assert counts.info["opinions"] == {
        "recorded": 10,
        "asked": 2,
        "asked_again": 0,
        "failed": 0,
        "unreadable": 1,
        "absent": 0,
    }
    assert counts.info["outcomes"]["revised"] == 7


def test_only_comparable_answers_are_checked_and_all_columns_are_kept(tmp_path: Path) -> None:
    checks = json.dumps({"tests": {"cases": ["assert f(1) == 1"]}})
    problems = [
        row("m", "1", pass_rate=0.25),
        row("none", "1", kind=None),  # a table from before there were kinds
        row("s", "B", kind="science"),
        row("c", "", kind="code", checks=checks),
        row("i", "", kind="instruction"),
        row("t", "", kind="chat"),
        row("blank", "  "),
        row("silent", "3"),
    ]
    answers = {"m": ["2", "2"], "none": ["1", "1"], "s": ["\\text{B}", "B"], "c": ["2", "2"]}
    inputs = {
        # The artifact of `unique` has another file name.
        "problems": write_problem_rows(tmp_path / "p", problems, "problems.parquet"),
        "responses": write_teacher(tmp_path / "sample", {**answers, "gone": ["1"]}),
        "opinion": record(tmp_path / "o.jsonl", {"m": "2"}),
    }
    counts, _ = run_revise(inputs, tmp_path / "revise")
    table = rows(tmp_path / "revise")
    assert {name: one["revision"] for name, one in table.items()} == {
        "m": "revised",
        "none": "agreed",
        "s": "agreed",
        "silent": "no_majority",
        **dict.fromkeys(("c", "i", "t", "blank")),
    }
    assert (table["m"]["ground_truth"], table["m"]["pass_rate"]) == ("2", 0.25)
    assert table["c"] == {**problems[3], "pass_rate": None} | {
        "original_ground_truth": "",
        "revision": None,
    }
    assert counts.info["not_checked"] == {
        "chat": 1,
        "code": 1,
        "instruction": 1,
        "no_ground_truth": 1,
    }
    assert counts.info["without_responses"] == 1
    assert counts.info["responses_to_other_problems"] == 3  # two to c, one to gone
    assert [one["problem_id"] for one in lines(tmp_path / "revise" / "revisions.jsonl")] == [
        *("m", "none", "s", "silent"),
    ]


def test_a_timeout_is_counted_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equivalence, "TIME_OUT_SECONDS", 1.0)
    endless = "9^{9^{9^{9}}}"
    problems = [row("a", "7.5"), row("b", "1")]
    inputs = {
        "problems": write_problem_rows(tmp_path / "p", problems),
        "responses": write_teacher(tmp_path / "sample", {"a": [endless] * 3, "b": ["1", "1"]}),
    }
    counts, _ = run_revise(inputs, tmp_path / "revise", ReviseConfig(disputed="drop"))
    assert rows(tmp_path / "revise")["a"]["revision"] == "not_compared"
    assert rows(tmp_path / "revise")["a"]["ground_truth"] == "7.5"
    assert counts.info["outcomes"] == {"agreed": 1, "not_compared": 1}
    assert counts.info["failed_comparisons"] == {"timeout": 1}


def test_the_page_shows_twenty_examples_of_each_outcome(tmp_path: Path) -> None:
    problems = [row(f"p{i:02d}", "1", problem=f"Is <b> {i} & more?") for i in range(22)]
    problems += [row("wrong", "3")]
    inputs = {
        "problems": write_problem_rows(tmp_path / "p", problems),
        "responses": write_teacher(
            tmp_path / "s",
            {**{f"p{i:02d}": ["1", "1"] for i in range(22)}, "wrong": ["4", "<4>", "4", None]},
        ),
        "opinion": tmp_path / "o.jsonl",
    }
    reply = {"problem_id": "wrong", "response": "<think>" + "x" * 500 + "</think>\\boxed{4} <i>"}
    inputs["opinion"].write_text(json.dumps(reply))
    run_revise(inputs, tmp_path / "revise")
    page = (tmp_path / "revise" / "audit.html").read_text(encoding="utf-8")
    assert re.findall(r"<td>(\w+)</td><td class=n>(\d+)</td><td class=n>([\d.]+) %", page) == [
        ("agreed", "22", "95.7"),
        ("revised", "1", "4.3"),
        *((name, "0", "0.0") for name in ("kept_upheld", "kept_disputed", "dropped_disputed")),
        *((name, "0", "0.0") for name in ("no_majority", "not_compared")),
    ]
    assert re.findall(r"<small>(.*?)</small>", page) == [*(f"p{i:02d}" for i in range(20)), "wrong"]
    assert "Is &lt;b&gt; 0 &amp; more?" in page
    assert "<td>2 × 4<br>1 × &lt;4&gt;<br>1 × no answer</td>" in page
    assert page.count("x" * 300) == 1 and "x" * 400 not in page  # the end of the reply
    assert "\\boxed{4} &lt;i&gt;" in page
    assert "<script" not in page and "http" not in page


def test_inputs_that_do_not_belong_together_are_errors(tmp_path: Path) -> None:
    problems = write_problem_rows(tmp_path / "p", [row("a", "1")])
    elsewhere = write_teacher(tmp_path / "s", {"x": ["1", "1"]})
    with pytest.raises(StageError, match="no response has an answer.*2 responses are to other"):
        run_revise({"problems": problems, "responses": elsewhere}, tmp_path / "r")
    speechless = write_teacher(tmp_path / "s2", {"a": [None, None]})
    with pytest.raises(StageError, match="no response has an answer"):
        run_revise({"problems": problems, "responses": speechless}, tmp_path / "r")
    twice = write_problem_rows(tmp_path / "p2", [row("a", "1"), row("a", "2")])
    with pytest.raises(StageError, match="problem a occurs twice.*`unique`"):
        run_revise({"problems": twice, "responses": speechless}, tmp_path / "r")
    with pytest.raises(StageError, match="no clean.parquet and no problems.parquet"):
        run_revise({"problems": tmp_path / "s", "responses": speechless}, tmp_path / "r")


def test_a_revised_table_is_not_revised_again(tmp_path: Path) -> None:
    inputs = plant(tmp_path)
    run_revise(inputs, tmp_path / "revise", ReviseConfig(opinion="none"))
    inputs["problems"] = tmp_path / "revise"
    with pytest.raises(StageError, match="has the columns original_ground_truth, revision"):
        run_revise(inputs, tmp_path / "again", ReviseConfig(opinion="none"))


RECIPE = """
title: Ground truths
sources:
  problems: {{path: {0}/problems}}
  responses: {{path: {0}/sample}}
  recorded: {{path: {0}/recorded.jsonl}}
stages:
  revise: {{inputs: {{problems: problems, responses: responses{1}}}}}
"""


def test_a_recipe_names_a_file_of_opinions(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    plant(tmp_path)
    recorded = {name: opinion for name, (_, _, opinion) in PLANTED.items() if opinion}
    record(tmp_path / "recorded.jsonl", recorded)
    recipe, runs = tmp_path / "truths.yaml", tmp_path / "runs"
    recipe.write_text(RECIPE.format(tmp_path, ""))
    code, _, said = call("run", str(recipe), "--runs", str(runs))
    assert code == 1 and "12 ground truths are disputed" in said
    (asked,) = runs.rglob("disputed.jsonl")  # it stays after the error
    assert len(lines(asked)) == 12 and str(asked) in said
    recipe.write_text(RECIPE.format(tmp_path, ", opinion: recorded"))
    code, _, said = call("run", str(recipe), "--runs", str(runs))
    assert code == 0, said
    (manifest,) = runs.rglob("manifest.json")
    assert {name: one["revision"] for name, one in rows(manifest.parent).items()} == FOUND
    # Other opinions are another revision.
    record(tmp_path / "recorded.jsonl", {**recorded, "third0": "10"})
    assert call("run", str(recipe), "--runs", str(runs))[0] == 0
    assert len(list(runs.rglob("manifest.json"))) == 2


def test_settings_that_contradict_each_other() -> None:
    around = {"placement": Placement(), "roles": {"problems", "responses", "opinion"}}
    with pytest.raises(ValueError, match="remove the input opinion, or opinion: none"):
        ReviseConfig.model_validate({"opinion": "none"}, context=around)
    config = ReviseConfig.model_validate({}, context=around)
    placement = Placement(opinion_urls=["http://a/v1"])
    assert config.request_urls(placement) == ["http://a/v1"]
    assert ReviseConfig(opinion="none").request_urls(placement) == []


def test_a_class_is_named_by_its_first_response_not_by_the_first_row(tmp_path: Path) -> None:
    answers: dict[str, list[str | None]] = {"a": ["008", "8", "+8", None]}
    inputs = {
        "problems": write_problem_rows(tmp_path / "p", [row("a", "8")]),
        "responses": write_teacher(tmp_path / "s", answers),  # the last response is the first row
    }
    run_revise(inputs, tmp_path / "revise")
    (line,) = lines(tmp_path / "revise" / "revisions.jsonl")
    assert (line["majority"], line["votes"], line["responses"]) == ("008", {"008": 3}, 4)
