"""Ratings by a rubric, from a judge on a real HTTP server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from grade_helpers import judge_server

from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import shipped
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.rubric import (
    Rating,
    Ratings,
    fill_rubric,
    rate_all,
    read_numbers,
)
from pcl_reasoner.verifiers.logs import RATING_LOG
from pcl_reasoner.verifiers.preference_scorers import Pair

CONFIG = GradeConfig(judge_model="j", judge_concurrency=2, max_missing=1.0, seed=40)
PAIRS = [Pair((f"p{i}", 0), f"Greet {i}.", f"Hello {i}!") for i in range(6)]


def rate(
    path: Path, url: str | None, config: GradeConfig = CONFIG, prompt: Path | None = None
) -> Ratings:
    placement = Placement(judge_urls=[url] if url else [])
    context = StageContext("grade", path / "refused.jsonl", placement=placement)
    return rate_all(config, PAIRS, len(PAIRS), path, context, None, prompt)


def test_three_whole_numbers_in_the_last_box_are_read() -> None:
    assert read_numbers("good. \\boxed{7, 9, 8}") == (7, 9, 8)
    assert read_numbers("\\boxed{1,1,1} no: \\boxed{ 0,10 ,5}") == (0, 10, 5)
    assert read_numbers("<think>\\boxed{1, 1, 1}</think>\\boxed{2, 2, 2}") == (2, 2, 2)
    for reply in (
        "7, 9, 8",
        "\\boxed{7, 9}",
        "\\boxed{7, 9, 8, 8}",
        "\\boxed{7, 9, 11}",
        "\\boxed{7, 9, -1}",
        "\\boxed{7, 9, 8.5}",
        "\\boxed{07, 9, 8}",
        "\\boxed{7, 9, ٨}",
        "\\boxed{7 9 8}",
        "\\boxed{helpful: 7, correct: 9, coherent: 8}",
        "\\boxed{7, 9, 8} \\boxed{}",
        "<think>\\boxed{7, 9, 8}",
        "",
    ):
        assert read_numbers(reply) is None, reply


def test_the_reward_is_the_mean_of_the_three_in_tenths() -> None:
    # (7 + 9 + 8) / 3 = 8, and 8 / 10.
    assert Rating((7, 9, 8), "").reward == pytest.approx(0.8)
    assert [Rating(one, "").reward for one in ((0, 0, 0), (10, 10, 10))] == [0.0, 1.0]
    assert Rating(None, "").reward is None


def test_the_shipped_prompt_shows_problem_and_answer() -> None:
    text = (shipped("recipes") / "prompts" / "rubric.txt").read_text(encoding="utf-8")
    filled = fill_rubric(text, "What is {answer}?", "It is \\boxed{2} or {problem}.")
    assert "What is {answer}?\n" in filled and "It is \\boxed{2} or {problem}.\n" in filled
    assert read_numbers(filled) == (7, 9, 8)  # its example is of the form that is read


def test_unreadable_replies_are_asked_again_with_another_seed_and_counted(tmp_path: Path) -> None:
    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        prompt, seed = body["messages"][0]["content"], body["seed"]
        if "Greet 1." in prompt and seed == 40:
            return 200, "\\boxed{great}"
        if "Greet 2." in prompt:
            return 200, f"hm {seed}"
        return 200, "fine. \\boxed{6, 6, 9}"

    with judge_server(answer) as (url, bodies):
        found = rate(tmp_path, url)
    good = Rating((6, 6, 9), "fine. \\boxed{6, 6, 9}")
    assert found.ratings[("p0", 0)] == good and good.reward == pytest.approx(0.7)
    assert found.ratings[("p1", 0)] == Rating(good.numbers, good.text, asked=2)
    assert found.ratings[("p2", 0)] == Rating(None, "hm 42", asked=3)
    assert found.figures == {"rated": 6, "asked_again": 3, "unreadable": 1}
    assert len(bodies) == 6 + 1 + 2
    assert {body["path"] for body in bodies} == {"/v1/chat/completions"}
    prompt = (shipped("recipes") / "prompts" / "rubric.txt").read_text(encoding="utf-8")
    assert found.described["prompt_sha256"] == fingerprint(prompt)
    sent = {body["messages"][0]["content"] for body in bodies}
    assert fill_rubric(prompt, "Greet 4.", "Hello 4!") in sent
    # All are in the log: no server is needed. One of six without numbers is over the limit.
    assert rate(tmp_path, None).ratings == found.ratings
    with pytest.raises(StageError, match=r"1 of 6 responses .* numbers: 1; .*earlier ratings"):
        rate(tmp_path, None, CONFIG.model_copy(update={"max_missing": 0.1}))


def test_a_refused_response_is_unrated_and_counted_by_its_reason(tmp_path: Path) -> None:
    """E.g. one that is longer than the judge's context: the others are rated."""

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        prompt = body["messages"][0]["content"]
        status = 400 if "Greet 1." in prompt else 422 if "Greet 2." in prompt else 200
        return status, "\\boxed{9, 9, 9}" if status == 200 else "too long"

    with judge_server(answer) as (url, bodies):
        found = rate(tmp_path, url)
        assert sorted(found.ratings) == [("p0", 0), ("p3", 0), ("p4", 0), ("p5", 0)]
        assert found.missing == {("p1", 0): "status 400", ("p2", 0): "status 422"}
        assert found.figures["rated"] == 4
        assert found.figures["missing"] == {"status 400": 1, "status 422": 1}
        # A resumed run asks about these two only.
        assert rate(tmp_path, url).missing == found.missing
        assert len(bodies) == 6 + 2
        # 2 of 6 is the limit of 0.34, and over that of 0.33.
        rate(tmp_path, url, CONFIG.model_copy(update={"max_missing": 0.34}))
        with pytest.raises(StageError, match=r"2 of 6 responses .*'status 422': 1.*p[12]/0: "):
            rate(tmp_path, url, CONFIG.model_copy(update={"max_missing": 0.33}))


def test_a_resumed_run_asks_about_the_rest(tmp_path: Path) -> None:
    lines = [
        {"problem_id": f"p{i}", "sample_index": 0, "numbers": [1, 2, 3], "text": "", "asked": 1}
        for i in range(4)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / RATING_LOG).write_text(text + '{"problem_id": "p4", "sam')
    with judge_server(lambda body, number: (200, "\\boxed{9, 9, 9}")) as (url, bodies):
        found = rate(tmp_path, url)
    assert len(bodies) == 2
    assert [found.ratings[(f"p{i}", 0)].numbers for i in (3, 4)] == [(1, 2, 3), (9, 9, 9)]


def test_no_server_and_an_incomplete_prompt_are_errors(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="rubric needs a judge: set placement.judge_urls"):
        rate(tmp_path, None)
    (tmp_path / "prompt.txt").write_text("rate {problem}")
    with pytest.raises(StageError, match="prompt.txt: the rubric's prompt lacks {answer}"):
        rate(tmp_path, None, prompt=tmp_path / "prompt.txt")
