"""Perplexities from a server's prompt log-probs, over real HTTP."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_prob_server import LogProbServer, answer_with, entries_of, log_prob
from perplexity_helpers import LENGTH, PROBLEMS, SERVER, read, response, run, write_inputs
from servers import all_gone, serving, starts, wait_for
from train_helpers import VOCABULARY, write_policy

from pcl_reasoner.core.artifact import hash_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference import fleet
from pcl_reasoner.pack.encoder import load_encoder
from pcl_reasoner.perplexity.config import PerplexityConfig

ROWS = [
    response("a", 0, [30, 31, 32, 2]),
    response("a", 1, [2]),
    response("b", 0, []),
    response("b", 1, [40, 40, 2], finish_reason="length"),
    response("c", 0, [VOCABULARY - 1, 5, 2]),
]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.01)


@pytest.fixture
def server() -> Iterator[LogProbServer]:
    one = LogProbServer()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def inputs(policy: Path, tmp_path: Path) -> dict[str, Path]:
    return write_inputs(tmp_path / "in", policy, ROWS)


def prompt_of(policy: Path, name: str) -> list[int]:
    return load_encoder(policy).prompt_ids([{"role": "user", "content": PROBLEMS[name]}])


def perplexities(policy: Path) -> list[Any]:
    """exp of minus the mean of the server's log-probs after the prompt, by hand."""
    found = []
    for row in ROWS:
        first = len(prompt_of(policy, row["problem_id"]))
        values = [log_prob(token, first + i) for i, token in enumerate(row["token_ids"])]
        mean = sum(values) / len(values) if values else None
        found.append(pytest.approx(math.exp(-mean), rel=1e-6) if mean else None)
    return found


def test_the_mean_is_over_the_response_without_its_prompt(
    inputs: dict[str, Path], policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    counts = run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])
    rows = read(tmp_path / "out")
    for row, before in zip(rows, ROWS, strict=True):
        assert {name: row[name] for name in before} == before
        assert row["trained_tokens"] == len(before["token_ids"])
    assert [row["perplexity"] for row in rows] == perplexities(policy)
    # One token: its own probability.
    first = len(prompt_of(policy, "a"))
    assert rows[1]["perplexity"] == pytest.approx(math.exp(0.3 + 0.25 * (first % 2)))
    assert rows[2]["perplexity"] is None
    assert (counts.read, counts.kept, counts.dropped) == (5, 5, {})
    assert counts.info["trained_tokens"] == 4 + 1 + 3 + 3
    assert counts.info["without_tokens"] == 1
    assert [one["url"] for one in counts.info["servers"]] == [server.url]
    # Nothing but the payload is left.
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "perplexity.json",
        "responses",
    ]


def test_a_request_has_prompt_and_response_as_token_ids(
    inputs: dict[str, Path], policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])
    wanted = [prompt_of(policy, row["problem_id"]) + row["token_ids"] for row in ROWS]
    del wanted[2]
    assert sorted(server.prompts) == sorted(wanted)
    body = server.asked[0]
    assert {name: value for name, value in body.items() if name != "prompt"} == {
        "model": "policy",
        "n": 1,
        "max_tokens": 1,
        "prompt_logprobs": 0,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": 0,
        "stream": False,
    }


def spoiled(body: dict[str, Any], how: str) -> tuple[int, Any]:
    prompt = body["prompt"]
    entries: Any = entries_of(prompt)
    last = entries[-1][str(prompt[-1])]
    if how in ("NaN", "-Infinity", "0.5", '"-1.0"', "null", "true"):
        last["logprob"] = "here"
        return 200, json.dumps(answer_with(entries)).replace('"here"', how)
    if how == "null entry":
        entries[-1] = None
    elif how == "other token":
        entries[-1] = {str(prompt[-1] + 1): last}
    elif how == "one place less":
        entries.pop()
    elif how == "one place more":
        entries.append({"5": last})
    elif how == "no list":
        entries = None
    if how == "no choices":
        return 200, {"choices": []}
    if how == "no JSON":
        return 200, "<html>busy</html>"
    if how == "a list":
        return 200, []
    return 200, answer_with(entries)


SPOILED = [
    *("NaN", "-Infinity", "0.5", '"-1.0"', "null", "true", "null entry", "other token"),
    *("one place less", "one place more", "no list", "no choices", "no JSON", "a list"),
]


@pytest.mark.parametrize("how", SPOILED)
def test_an_answer_without_usable_log_probs_is_asked_again(
    how: str, inputs: dict[str, Path], policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    server.reply = lambda body, number: spoiled(body, how) if number in (1, 2) else None
    counts = run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])
    assert counts.info["retried"] == {"bad answer": 2}
    assert [row["perplexity"] for row in read(tmp_path / "out")] == perplexities(policy)


def test_what_is_wrong_is_said_when_no_answer_is_usable(
    inputs: dict[str, Path], server: LogProbServer, tmp_path: Path
) -> None:
    def fails(how: str, message: str) -> None:
        server.reply = lambda body, number: spoiled(body, how)
        with pytest.raises(StageError, match=message):
            run(inputs, tmp_path / how, SERVER, server_urls=[server.url])

    fails("NaN", "is nan, which is no log-prob")
    fails("one place less", r"\d+ prompt_logprobs, expected \d+")
    fails("no list", "no prompt_logprobs of all tokens")


def test_a_refused_request_stops_the_stage(
    inputs: dict[str, Path], server: LogProbServer, tmp_path: Path
) -> None:
    refusal = {"error": {"message": "Out of range float values are not JSON compliant: nan"}}
    server.reply = lambda body, number: (400, refusal)
    with pytest.raises(StageError, match="response . of problem . .status 400: .*not JSON compl"):
        run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])


def test_the_server_must_have_room_for_one_token_more(
    inputs: dict[str, Path], server: LogProbServer, tmp_path: Path
) -> None:
    [needs] = PerplexityConfig(**SERVER).servers()
    assert (needs.role, needs.name, needs.max_model_len) == ("policy", "policy", LENGTH + 1)
    server.models = [{"id": "policy", "max_model_len": LENGTH}]
    with pytest.raises(StageError, match=f"serves {LENGTH} tokens of context, seq_length . 1 is"):
        run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])
    assert PerplexityConfig(seq_length=8).servers() == []


def test_a_server_must_be_named(inputs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(StageError, match="the launch file names no server"):
        run(inputs, tmp_path / "out", SERVER)


def test_two_responses_with_one_key_are_refused(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    rows = [response("a", 0, [5]), response("a", 0, [6])]
    inputs = write_inputs(tmp_path / "in", policy, rows)
    with pytest.raises(StageError, match="several responses have the same problem_id"):
        run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])


MANY = [response(name, index, [3 + index, 2]) for name in PROBLEMS for index in range(10)]
RUN = """
import json, sys
from pathlib import Path
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.perplexity.config import PerplexityConfig
from pcl_reasoner.perplexity.stage import perplexity

inputs, output, settings, url = json.loads(sys.argv[1])
context = StageContext("perplexity", Path(output) / "q.jsonl", Placement(server_urls=[url]))
inputs = {name: Path(path) for name, path in inputs.items()}
perplexity(PerplexityConfig(**settings), inputs, Path(output), context)
"""


def test_a_killed_stage_asks_nothing_twice(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    inputs = write_inputs(tmp_path / "in", policy, MANY)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(inputs, whole, SERVER, server_urls=[server.url])
    server.asked.clear()
    server.seconds = 0.1
    cut.mkdir()
    log = cut / "work" / "log_probs.jsonl"
    given = [{name: str(path) for name, path in inputs.items()}, str(cut), SERVER, server.url]
    killed = subprocess.Popen([sys.executable, "-c", RUN, json.dumps(given)])
    while not (log.exists() and len(log.read_text().splitlines()) > 8):
        assert killed.poll() is None
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    lines = [line for line in log.read_text().split("\n")[:-1] if "problem_id" in line]
    answered = [(line["problem_id"], line["sample_index"]) for line in map(json.loads, lines)]
    assert 0 < len(answered) < len(MANY)
    with log.open("a") as handle:
        handle.write('{"problem_id": "c", "sample_ind')
    # Another server: a request in flight may still reach the first one.
    other = LogProbServer()
    run(inputs, cut, SERVER, server_urls=[other.url])
    other.stop()
    left = [row for row in MANY if (row["problem_id"], row["sample_index"]) not in answered]
    wanted = [prompt_of(policy, row["problem_id"]) + row["token_ids"] for row in left]
    assert sorted(other.prompts) == sorted(wanted)
    for name in ("responses/part-00000.parquet", "responses/part-00001.parquet"):
        assert hash_file(cut / name) == hash_file(whole / name)


def test_the_server_that_the_stage_starts_is_started_again_if_it_is_lost(
    policy: Path, server: LogProbServer, tmp_path: Path
) -> None:
    inputs = write_inputs(tmp_path / "in", policy, MANY)
    run(inputs, tmp_path / "whole", SERVER, server_urls=[server.url])
    # No retries: what the server's end broke is not the request's failure.
    settings, out = {**SERVER, "retries": 0}, tmp_path / "out"
    log = out / "work" / "log_probs.jsonl"

    def kill() -> None:
        wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 8)
        os.kill(starts(tmp_path)[0][0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    placement = serving(tmp_path, slow=0.05, program="stand_in_log_probs.py")
    counts = run(inputs, out, settings, **placement)
    killer.join()
    assert counts.kept == len(MANY)
    assert len(starts(tmp_path)) == 2 and all_gone(tmp_path)
    name = "responses/part-00000.parquet"
    assert hash_file(out / name) == hash_file(tmp_path / "whole" / name)


def test_a_server_that_is_lost_too_often_stops_the_stage(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    placement = serving(tmp_path, "dies_when_asked", program="stand_in_log_probs.py", restarts=1)
    with pytest.raises(StageError, match="the server was lost 2 times, restarts is 1"):
        run(inputs, tmp_path / "out", SERVER, **placement)
    assert len(starts(tmp_path)) == 2 and all_gone(tmp_path)


def test_a_stage_killed_before_its_commit_asks_nobody(
    inputs: dict[str, Path], server: LogProbServer, tmp_path: Path
) -> None:
    first = run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])
    server.asked.clear()
    (tmp_path / "out" / "work").mkdir()  # its deletion was not complete
    assert run(inputs, tmp_path / "out", SERVER, server_urls=[server.url]) == first
    assert server.asked == []
    assert not (tmp_path / "out" / "work").exists()


def test_answers_outlive_an_error(policy: Path, server: LogProbServer, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "in", policy, MANY)
    server.reply = lambda body, number: (400, {"error": "no"}) if number == 12 else None
    with pytest.raises(StageError, match="no server gives log-probs"):
        run(inputs, tmp_path / "out", SERVER, server_urls=[server.url])
    kept = (tmp_path / "out" / "work" / "log_probs.jsonl").read_text().count("log_prob_mean")
    assert kept >= 10
    # Another server: a request in flight may still reach the first one.
    other = LogProbServer()
    counts = run(inputs, tmp_path / "out", SERVER, server_urls=[other.url])
    other.stop()
    assert (len(other.asked), counts.kept) == (len(MANY) - kept, len(MANY))
    assert [one["url"] for one in counts.info["servers"]] == [server.url, other.url]
