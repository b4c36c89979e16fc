"""The third model's server: a real one that is down, slow, talks nonsense, or is another model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from grade_helpers import judge_server
from revise_helpers import PLANTED, name_in, plant, run_revise, third_model
from servers import wait_for

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference import fleet
from pcl_reasoner.revise import asking
from pcl_reasoner.revise.config import ReviseConfig

DISPUTED = sorted(name for name in PLANTED if not name.startswith("right"))
KEEP_ALL = ReviseConfig(max_missing=1.0)
LOG = "opinions.partial.jsonl"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.05)


def box(name: str) -> str:
    return f"<think>x</think>\\boxed{{{PLANTED[name][2]}}}"


def test_every_sampling_field_is_sent_to_vllm(tmp_path: Path) -> None:
    config = ReviseConfig(opinion_suffix="\nBox it.", seed=7, opinion_thinking=False)
    with third_model("opinion") as (url, bodies):
        run_revise(plant(tmp_path), tmp_path / "revise", config, opinion_urls=[url])
    (body,) = [one for one in bodies if name_in(one) == "wrong0"]
    assert body == {
        "path": "/v1/chat/completions",
        "model": "opinion",
        "messages": [{"role": "user", "content": "Problem wrong0?\nBox it."}],
        "n": 1,
        "seed": 7,
        "max_tokens": 32768,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "stream": False,
        "return_token_ids": False,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_openais_reasoning_models_get_only_what_they_accept(tmp_path: Path) -> None:
    config = ReviseConfig(opinion_api="openai", opinion_model="o4-mini", opinion_suffix="")
    with third_model("o4-mini", "gpt") as (url, bodies):
        run_revise(plant(tmp_path), tmp_path / "revise", config, opinion_urls=[url])
    (body,) = [one for one in bodies if name_in(one) == "wrong0"]
    assert body == {
        "path": "/v1/chat/completions",
        "model": "o4-mini",
        "messages": [{"role": "user", "content": "Problem wrong0?"}],
        "n": 1,
        "max_completion_tokens": 32768,
    }


def test_an_unreadable_reply_is_asked_again_with_another_seed(tmp_path: Path) -> None:
    asked: dict[str, list[int]] = {}

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        name = name_in(body)
        seeds = asked.setdefault(name, [])
        seeds.append(body["seed"])
        readable = name not in ("wrong0", "wrong1") or (name == "wrong1" and len(seeds) == 3)
        return 200, box(name) if readable else "It is certainly so."

    config = ReviseConfig(max_missing=0.1, disputed="drop")
    with judge_server(answer) as (url, _):
        counts, _ = run_revise(plant(tmp_path), tmp_path / "r", config, opinion_urls=[url])
    assert asked["wrong0"] == asked["wrong1"] == [0, 1, 2]
    assert counts.info["opinions"] == {
        "asked": 12,
        "asked_again": 4,
        "failed": 0,
        "unreadable": 1,
        "absent": 0,
    }
    assert counts.info["outcomes"]["revised"] == 7
    assert counts.dropped == {"disputed": 3}
    opinions = [json.loads(line) for line in (tmp_path / "r" / "opinions.jsonl").open()]
    (unreadable,) = [one for one in opinions if one["answer"] is None]
    assert (unreadable["problem_id"], unreadable["asked"]) == ("wrong0", 3)
    assert unreadable["text"] == "It is certainly so."


def test_nonsense_alone_stops_the_stage(tmp_path: Path) -> None:
    config = ReviseConfig(opinion_attempts=2)
    with judge_server(lambda body, number: (200, "Who knows?")) as (url, bodies):
        with pytest.raises(StageError, match="12 of 12 disputed problems have no readable opinion"):
            run_revise(plant(tmp_path), tmp_path / "r", config, opinion_urls=[url])
        assert len(bodies) == 24
        # The replies are kept: a larger max_missing needs no further question.
        again = config.model_copy(update={"max_missing": 1.0})
        inputs = {"problems": tmp_path / "problems", "responses": tmp_path / "sample"}
        counts, _ = run_revise(inputs, tmp_path / "r", again, opinion_urls=[url])
    assert len(bodies) == 24
    assert counts.info["outcomes"]["kept_disputed"] == 12
    assert config.hashed() == again.hashed()  # so it is the same folder


def test_a_server_that_breaks_every_question_stops_the_stage_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "RETRIES", 1)
    config = KEEP_ALL.model_copy(update={"opinion_concurrency": 1})

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        return (200, box(name_in(body))) if number == 1 else (200, {"text": "?"})

    with (
        judge_server(answer) as (url, bodies),
        pytest.raises(StageError, match="about problem .*an odd answer.* 1 opinions are"),
    ):
        run_revise(plant(tmp_path), tmp_path / "r", config, opinion_urls=[url])
    assert len(bodies) == 3


def test_a_server_that_is_down(tmp_path: Path) -> None:
    with third_model() as (url, _):
        pass
    with pytest.raises(StageError, match="no answer. Start.*placement.opinion_urls"):
        run_revise(plant(tmp_path), tmp_path / "r", KEEP_ALL, opinion_urls=[url])


def test_a_server_that_offers_another_model(tmp_path: Path) -> None:
    with (
        third_model("policy") as (url, bodies),
        pytest.raises(StageError, match="offers policy, not 'opinion'.*or set opinion_model"),
    ):
        run_revise(plant(tmp_path), tmp_path / "r", opinion_urls=[url])
    assert not bodies


def test_a_slow_server_fails_one_request_not_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(asking, "RETRIES", 1)
    waiting, tried = threading.Event(), []

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        if name_in(body) == "wrong0":
            tried.append(number)
            waiting.wait(30)
        return 200, box(name_in(body))

    config = ReviseConfig(max_missing=0.1)
    with judge_server(answer) as (url, _):
        try:
            counts, made = run_revise(plant(tmp_path), tmp_path / "r", config, opinion_urls=[url])
        finally:
            waiting.set()
    assert len(tried) == 2
    figures = counts.info["opinions"]
    assert (figures["asked"], figures["failed"], figures["absent"]) == (12, 1, 1)
    assert counts.info["outcomes"]["kept_disputed"] == 3
    assert [warning.split(":")[0] for warning in made.warnings] == ["problem wrong0"]
    told = json.loads((tmp_path / "r" / "opinion.json").read_text())
    assert told["retried"] == {"timeout": 2}


def test_a_refused_request_is_counted_and_too_many_stop_the_stage(tmp_path: Path) -> None:
    refused = {"wrong0", "wrong1"}

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        name = name_in(body)
        return (400, "too long") if name in refused else (200, box(name))

    inputs, config = plant(tmp_path), ReviseConfig(max_missing=1 / 12, opinion_concurrency=1)
    with judge_server(answer) as (url, bodies):
        with pytest.raises(StageError, match="2 of 12 requests .* failed.*max_missing 8%.*400"):
            run_revise(inputs, tmp_path / "r", config, opinion_urls=[url])
        assert len(bodies) == 2  # the others are not tried in vain
        refused.discard("wrong1")
        counts, _ = run_revise(inputs, tmp_path / "r", config, opinion_urls=[url])
    # What was refused is asked again by the next run.
    assert [name_in(body) for body in bodies].count("wrong0") == 2
    assert counts.info["opinions"]["failed"] == 1


def test_the_key_is_named_by_an_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = plant(tmp_path)
    monkeypatch.delenv("THIRD_KEY", raising=False)
    with third_model() as (url, _):
        placement = {"opinion_urls": [url], "api_keys": {url: "THIRD_KEY"}}
        with pytest.raises(StageError, match="THIRD_KEY is not set"):
            run_revise(inputs, tmp_path / "r", **placement)
        monkeypatch.setenv("THIRD_KEY", "sesame")
        run_revise(inputs, tmp_path / "r", **placement)
    files = [file for file in (tmp_path / "r").iterdir() if b"sesame" in file.read_bytes()]
    assert files == []


RUN = """
import sys
from pathlib import Path
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.revise.stage import ReviseConfig, revise

if __name__ == "__main__":
    path, url = Path(sys.argv[1]), sys.argv[2]
    inputs = {"problems": path / "problems", "responses": path / "sample"}
    context = StageContext("revise", path / "q.jsonl", Placement(opinion_urls=[url]))
    revise(ReviseConfig(opinion_concurrency=1), inputs, path / "killed", context)
"""


def test_a_killed_run_asks_nothing_twice(tmp_path: Path) -> None:
    inputs, output = plant(tmp_path), tmp_path / "killed"
    output.mkdir()
    killed = threading.Event()

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        if number == 6:  # five opinions are logged, and this one never arrives
            killed.wait(60)
        return 200, box(name_in(body))

    with judge_server(answer) as (url, bodies):
        child = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path), url])
        try:
            wait_for(lambda: len(bodies) == 6)
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            killed.set()
        kept = [json.loads(line) for line in (output / LOG).read_text().splitlines()]
        answered = [one["problem_id"] for one in kept if "problem_id" in one]
        with (output / LOG).open("ab") as log:
            log.write(b'{"problem_id": "wr')  # as a kill in the midst of a write leaves it
        config = ReviseConfig(opinion_concurrency=1)
        counts, _ = run_revise(inputs, output, config, opinion_urls=[url])
        asked = [name_in(body) for body in bodies]
        in_flight = asked[5]
        assert len(answered) == 5 and in_flight not in answered
        assert sorted(asked) == sorted([*DISPUTED, in_flight])
        assert counts.info["opinions"]["asked"] == 12
        assert not (output / LOG).exists()
        run_revise(inputs, tmp_path / "whole", config, opinion_urls=[url])
    for name in ("clean.parquet", "revisions.jsonl", "opinions.jsonl", "audit.html"):
        assert (output / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    # Killed between the last write and the commit: the server, gone by now, is not needed.
    before = time.time_ns()
    again, _ = run_revise(inputs, output, config, opinion_urls=[url])
    assert again == counts
    assert all(file.stat().st_mtime_ns < before for file in output.iterdir())
