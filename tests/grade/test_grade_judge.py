"""The judge, against a real HTTP server."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from grade_helpers import judge_server

from pcl_reasoner.answers.chat import post
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import shipped
from pcl_reasoner.grade.judge import Judgement, ask_judge, candidate_text, fill_prompt, read_reply
from pcl_reasoner.inference import fleet as fleet_module
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.fleet import Fleet, Keys, connections
from pcl_reasoner.inference.settings import SamplingConfig

SETTINGS = SamplingConfig(
    n=1,
    served_model="qwen",
    temperature=0.6,
    top_p=0.95,
    top_k=20,
    min_p=0.01,
    max_new_tokens=100,
    max_model_len=200,
    seed=7,
    concurrency=4,
    retries=2,
)
RETRIED: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "FIRST_PAUSE", 0.05)


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
    assert candidate_text({"response": response, "n_tokens": 100}, 30) == "b" * 60
    # 80 tokens would be 160 characters, but only 100 stand after the thoughts.
    assert candidate_text({"response": response, "n_tokens": 100}, 80) == "b" * 100
    assert candidate_text({"response": "<think>\\boxed{8}", "n_tokens": 10}, 300) is None


def ask(urls: list[str], *names: str, **settings: Any) -> list[Judgement]:
    """One question after the other, as a stage's worker asks them."""

    async def all_of_them() -> list[Judgement]:
        found = []
        config = SETTINGS.model_copy(update=settings)
        async with connections(config, len(urls)) as http:
            fleet = Fleet(dict.fromkeys(urls), config, http, keys=Keys("judge_urls", "judge_model"))
            await fleet.open()
            asker = Asker(fleet, RETRIED, lambda: "nothing is kept", post)
            for name in names or ("a/0",):
                found.append(await ask_judge(asker, name, "?", thinking=False, attempts=3))
        return found

    RETRIED.clear()
    return asyncio.run(all_of_them())


def test_asked_again_with_another_seed_until_it_can_be_read() -> None:
    replies = ["no idea", None, "\\boxed{1}"]
    with judge_server(lambda body, number: (200, replies[number - 1])) as (url, bodies):
        assert ask([url]) == [Judgement(True, "\\boxed{1}", asked=3)]
    assert [body["seed"] for body in bodies] == [7, 8, 9]
    assert bodies[0]["path"] == "/v1/chat/completions"


def test_every_sampling_field_and_the_thinking_mode_are_sent() -> None:
    with judge_server(lambda body, number: (200, "\\boxed{1}")) as (url, bodies):
        ask([url])
    (body,) = bodies
    assert body == {
        "path": "/v1/chat/completions",
        "model": "qwen",
        "messages": [{"role": "user", "content": "?"}],
        "n": 1,
        "seed": 7,
        "max_tokens": 100,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.01,
        "repetition_penalty": 1.0,
        "stream": False,
        "return_token_ids": False,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_given_up_after_three() -> None:
    with judge_server(lambda body, number: (200, f"hm {number}")) as (url, bodies):
        assert ask([url]) == [Judgement(None, "hm 3", asked=3)]
    assert len(bodies) == 3


def test_a_busy_server_is_tried_again() -> None:
    with judge_server(lambda body, number: (503 if number == 1 else 200, "\\boxed{0}")) as (url, _):
        assert ask([url]) == [Judgement(False, "\\boxed{0}")]
    assert RETRIED == {"status 503": 1}


def test_refusals_and_absence_are_errors() -> None:
    with judge_server(lambda body, number: (400, "too long")) as (url, bodies):
        with pytest.raises(StageError, match="about a/0 .*400.*judge_"):
            ask([url])
        assert len(bodies) == 1
    with pytest.raises(StageError, match="no answer.*placement.judge_urls"):
        ask([url])
    with (
        judge_server(lambda body, number: (200, {"text": 1})) as (url, bodies),
        pytest.raises(StageError, match="an odd answer"),
    ):
        ask([url])
    assert len(bodies) == 3  # and two retries


def test_a_server_that_offers_another_model_is_named_with_the_judges_keys() -> None:
    with (
        judge_server(lambda body, number: (200, "\\boxed{1}"), "policy") as (url, bodies),
        pytest.raises(StageError, match="offers policy, not 'qwen'.*or set judge_model"),
    ):
        ask([url])
    assert not bodies


def test_a_failing_server_leaves_the_work_to_the_other() -> None:
    with (
        judge_server(lambda body, number: (500, "broken")) as (first, to_first),
        judge_server(lambda body, number: (200, "\\boxed{1}")) as (second, to_second),
    ):
        found = ask([first, second], *(f"a/{index}" for index in range(6)))
    assert [one.correct for one in found] == [True] * 6
    assert len(to_second) == 6
    # It rests after a failure and is tried again now and then, not by every question.
    assert 1 <= len(to_first) < 6
