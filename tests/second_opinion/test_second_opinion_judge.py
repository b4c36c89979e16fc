"""Asking the judge over real HTTP: rounds, the cache, replies that cannot be read, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from grade_helpers import judge_server
from second_opinion_helpers import Script, read_lines, read_pair, scripted

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference import fleet as fleet_module
from pcl_reasoner.second_opinion import judge as judge_module
from pcl_reasoner.second_opinion.config import JudgeConfig
from pcl_reasoner.second_opinion.judge import Judge

TEXTS = {7: [("t7", "a"), ("t7", "b"), ("t7", "c"), ("t7", "d")], 9: [("t9", "a")]}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "FIRST_PAUSE", 0.05)


def made(url: str | list[str], folder: Path, **settings: Any) -> Judge:
    urls = [url] if isinstance(url, str) else url
    context = StageContext("c", folder / "q.jsonl", Placement(judge_urls=urls))
    return Judge(JudgeConfig(**settings), context, folder / "out", folder / "verdicts")


def verdicts(judge: Judge, texts: Any = TEXTS) -> dict[int, list[str]]:
    return {key: [one.verdict for one in found] for key, found in judge.ask(texts).items()}


def asked(bodies: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [read_pair(body) for body in bodies]


def says(*yes: tuple[str, str]) -> Script:
    return lambda text, question: f"hm\nVERDICT: {'YES' if (text, question) in yes else 'NO'}"


def test_the_first_yes_ends_a_texts_questions_and_three_are_the_most(tmp_path: Path) -> None:
    with judge_server(scripted(says(("t7", "b")))) as (url, bodies):
        judge = made(url, tmp_path)
        assert verdicts(judge) == {7: ["no", "yes"], 9: ["no"]}
        assert sorted(asked(bodies)) == [("t7", "a"), ("t7", "b"), ("t9", "a")]
    with judge_server(scripted(says())) as (url, bodies):
        assert verdicts(made(url, tmp_path, seed=1))[7] == ["no", "no", "no"]
        assert ("t7", "d") not in asked(bodies)


def test_a_verdict_is_asked_for_once_for_each_text_question_prompt_and_judge(
    tmp_path: Path,
) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("{question} {text}?")
    with judge_server(scripted(says(("t7", "b")))) as (url, bodies):
        first = verdicts(made(url, tmp_path))
        assert verdicts(made(url, tmp_path)) == first
        # What only changes how fast the answer comes is no other judge.
        assert verdicts(made(url, tmp_path, concurrency=1, max_model_len=9999)) == first
        assert len(bodies) == 3
        for number, other in enumerate(
            ({"model": "x"}, {"temperature": 0.1}, {"prompt": str(mine)}, {"thinking": True}), 2
        ):
            assert verdicts(made(url, tmp_path, **other)) == first
            assert len(bodies) == 3 * number
        texts = {1: [("t7", "a")], 2: [("t8", "a")], 3: [("t8", "a")]}
        assert verdicts(made(url, tmp_path), texts) == {1: ["no"], 2: ["no"], 3: ["no"]}
        assert asked(bodies)[15:] == [("t8", "a")]
    # Nobody listens any more, and nothing has to be asked.
    assert verdicts(made("http://127.0.0.1:9/v1", tmp_path)) == first


def test_an_unreadable_verdict_is_asked_once_more_with_another_seed_and_kept(
    tmp_path: Path,
) -> None:
    def answer(body: dict[str, Any], number: int) -> tuple[int, str]:
        second = body["seed"] == 5 and read_pair(body)[0] == "t9"
        return 200, "VERDICT: YES" if second else "I am not sure."

    texts = {7: [("t7", "a")], 9: [("t9", "a")]}
    with judge_server(answer) as (url, bodies):
        judge = made(url, tmp_path, seed=4)
        found = judge.ask(texts)
        assert [(one.verdict, one.text, one.asked) for (one,) in found.values()] == [
            ("unreadable", "I am not sure.", 2),
            ("yes", "VERDICT: YES", 2),
        ]
        assert sorted(body["seed"] for body in bodies) == [4, 4, 5, 5]
        assert made(url, tmp_path, seed=4).ask(texts) == found and len(bodies) == 4


def test_a_reply_that_was_cut_off_has_no_verdict(tmp_path: Path) -> None:
    choice = {"message": {"content": "VERDICT: YES"}, "finish_reason": "length"}
    with judge_server(lambda body, number: (200, {"choices": [choice]})) as (url, _):
        assert verdicts(made(url, tmp_path), {1: [("t", "a")]}) == {1: ["unreadable"]}


def test_a_refused_pair_is_the_rules_and_is_asked_by_the_next_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module, "RETRIES", 1)

    def answer(body: dict[str, Any], number: int) -> tuple[int, str]:
        return (400, "too long") if read_pair(body)[0] == "t7" else (200, "VERDICT: NO")

    with judge_server(answer, "judge") as (url, _):
        judge = made(url, tmp_path)
        found = judge.ask(TEXTS)
        assert [one.verdict for one in found[7]] == ["unreadable"] * 3
        assert found[7][0].text.startswith("request failed: ") and found[9][0].same is False
        assert any("the judge refused 3 pairs" in one for one in judge._context.warnings)
    with judge_server(scripted(says(("t7", "a"))), "judge") as (url, bodies):
        assert verdicts(made(url, tmp_path)) == {7: ["yes"], 9: ["no"]}
        assert asked(bodies) == [("t7", "a")]


def test_a_torn_last_line_is_dropped_and_a_locked_cache_is_left_alone(tmp_path: Path) -> None:
    with judge_server(scripted(says())) as (url, bodies):
        verdicts(made(url, tmp_path))
        (file,) = (tmp_path / "verdicts").glob("*/verdicts.jsonl")
        whole = file.read_bytes()
        file.write_bytes(whole + b'{"problem_id": "00')
        verdicts(made(url, tmp_path))
        assert file.read_bytes() == whole and len(bodies) == 4
        assert {"problem_id", "sample_index", "same", "text", "asked", "crc32"} == {
            key for line in read_lines(file) if "same" in line for key in line
        }

        def while_asked(body: dict[str, Any], number: int) -> tuple[int, str]:
            # Another check at the same time, with the same judge.
            before = file.read_bytes()
            other = made(url, tmp_path)
            assert verdicts(other, {1: [("t1", "a")]}) == {1: ["no"]}
            assert file.read_bytes() == before
            return 200, "VERDICT: NO"

        with judge_server(while_asked) as (second, _):
            assert verdicts(made(second, tmp_path), {1: [("t2", "a")]}) == {1: ["no"]}


def test_a_missing_server_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"no server to ask. Set placement.judge_urls .* --judge"):
        made([], tmp_path)
    with pytest.raises(StageError, match=r"127.0.0.1:9/v1"):
        verdicts(made("http://127.0.0.1:9/v1", tmp_path))
    other = pytest.raises(StageError, match=r"other.*judge.model")
    with judge_server(scripted(says()), "other") as (url, _), other:
        verdicts(made(url, tmp_path))
