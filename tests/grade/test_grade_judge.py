"""The judge, against a real HTTP server."""

from __future__ import annotations

import pytest
from grade_helpers import judge_server

from pcl_reasoner.errors import StageError
from pcl_reasoner.files import shipped
from pcl_reasoner.grade import judge as module
from pcl_reasoner.grade.judge import (
    Judge,
    Judgement,
    JudgeSampling,
    candidate_text,
    each_in_flight,
    fill_prompt,
    read_reply,
)

SAMPLING = JudgeSampling("qwen", 0.6, 0.95, 100, seed=7)


def test_replies() -> None:
    assert read_reply("equal, \\boxed{1}") is True
    assert read_reply("\\boxed{1}? no: \\boxed{0}") is False
    assert read_reply("<think>\\boxed{1}</think>\\boxed{0}") is False
    assert read_reply("<think>\\boxed{1}") is None
    assert read_reply("the answer is 1") is None
    assert read_reply("\\boxed{8}") is None


def test_fields_are_filled_and_other_braces_stay() -> None:
    prompt = "{ground_truth}|{candidate}|\\boxed{1}"
    assert fill_prompt(prompt, "{candidate}", "\\boxed{5}") == "{candidate}|\\boxed{5}|\\boxed{1}"


def test_shipped_prompt_has_both_fields_and_both_verdicts() -> None:
    text = (shipped("recipes") / "prompts" / "judge.txt").read_text(encoding="utf-8")
    for part in ("{ground_truth}", "{candidate}", "\\boxed{1}", "\\boxed{0}"):
        assert part in text


def test_candidate_is_the_end_of_what_follows_the_thoughts() -> None:
    response = "<think>" + "a" * 85 + "</think>" + "b" * 100  # 200 characters
    # 200 characters in 100 tokens are 2 a token, so 30 tokens are 60 characters.
    assert candidate_text(response, 100, 30) == "b" * 60
    # 80 tokens would be 160 characters, but only 100 stand after the thoughts.
    assert candidate_text(response, 100, 80) == "b" * 100
    assert candidate_text("<think>\\boxed{8}", 10, 300) is None


def test_asked_again_with_another_seed_until_it_can_be_read() -> None:
    replies = ["no idea", None, "\\boxed{1}"]
    with judge_server(lambda body, number: (200, replies[number - 1])) as (url, bodies):
        found = Judge([url], SAMPLING).ask("?")
    assert found == Judgement(True, "\\boxed{1}")
    assert [body["seed"] for body in bodies] == [7, 8, 9]
    assert bodies[0]["path"] == "/v1/chat/completions"
    assert bodies[0]["messages"] == [{"role": "user", "content": "?"}]
    assert (bodies[0]["model"], bodies[0]["max_tokens"]) == ("qwen", 100)


def test_given_up_after_three() -> None:
    with judge_server(lambda body, number: (200, f"hm {number}")) as (url, bodies):
        assert Judge([url], SAMPLING).ask("?") == Judgement(None, "hm 3")
    assert len(bodies) == 3


def test_a_busy_server_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAITS_SECONDS", (0.01,))
    with judge_server(lambda body, number: (503 if number == 1 else 200, "\\boxed{0}")) as (url, _):
        assert Judge([url], SAMPLING).ask("?").right is False


def test_refusals_and_absence_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAITS_SECONDS", (0.01,))
    with judge_server(lambda body, number: (404, "no such model")) as (url, bodies):
        with pytest.raises(StageError, match="404.*judge_model"):
            Judge([url], SAMPLING).ask("?")
        assert len(bodies) == 1
    with pytest.raises(StageError, match="ConnectError"):
        Judge([url], SAMPLING).ask("?")
    with (
        judge_server(lambda body, number: (200, {"text": 1})) as (url, _),
        pytest.raises(StageError, match="OpenAI-compatible"),
    ):
        Judge([url], SAMPLING).ask("?")


def test_servers_take_turns() -> None:
    with (
        judge_server(lambda body, number: (200, "\\boxed{1}")) as (first, to_first),
        judge_server(lambda body, number: (200, "\\boxed{1}")) as (second, to_second),
    ):
        judge = Judge([first, second], SAMPLING)
        for _ in range(4):
            judge.ask("?")
    assert (len(to_first), len(to_second)) == (2, 2)


def test_no_more_items_are_read_than_are_in_flight() -> None:
    read: list[int] = []

    def items() -> list[int]:
        for item in range(100):
            read.append(item)
            yield item

    results = each_in_flight(lambda item: item * 2, items(), 4)
    next(results)
    assert len(read) <= 8
    assert sorted([*results]) != []
    assert len(read) == 100
