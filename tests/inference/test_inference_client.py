from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from completion_server import CompletionServer, drop, send, status, wait
from sample_helpers import PROBLEMS, context, rows_of
from tokenizers import Tokenizer

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.curate import problem_id
from pcl_reasoner.inference import fleet
from pcl_reasoner.sample.stage import SampleConfig, sample

CONFIG = SampleConfig(
    engine="server", n=4, max_new_tokens=40, max_model_len=200, seed=100, top_k=0, concurrency=3
)
PATIENT = CONFIG.model_copy(update={"max_failed": 1.0})
ORDER = sorted(PROBLEMS, key=problem_id)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.01)


def test_each_response_is_the_one_of_its_own_seed(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert (counts.read, counts.kept) == (12, 12)
    # Seeds start at 100 and are n = 4 apart by problem; choices came back in reverse order.
    expected = [
        (problem_id(text), i, 100 + 4 * p + i) for p, text in enumerate(ORDER) for i in range(4)
    ]
    rows = rows_of(tmp_path)
    assert [(row["problem_id"], row["sample_index"], row["seed"]) for row in rows] == expected
    assert [row["response"].split("<")[1] for row in rows] == [f"think>{s}" for _, _, s in expected]
    assert all(row["server"] == server.url and row["seconds"] > 0 for row in rows)
    # This server gives no token ids: made from the text, the end of turn put back, and flagged.
    tokenizer = Tokenizer.from_file(str(inputs["policy"] / "tokenizer.json"))
    for row in rows:
        assert row["token_ids"] == [*tokenizer.encode(row["response"]).ids, 2]
    assert counts.info["retokenised"] == 12


def test_every_sampling_field_is_sent(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    config = CONFIG.model_copy(
        update={"system": "Think.", "suffix": " Box it.", "max_new_tokens": None}
    )
    sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url + "/"]))
    body = next(b for b in server.asked if b["messages"][1]["content"] == f"{ORDER[1]} Box it.")
    assert body["messages"][0] == {"role": "system", "content": "Think."}
    tokenizer = Tokenizer.from_file(str(inputs["policy"] / "tokenizer.json"))
    prompt = "".join(
        f"<|im_start|>{role}\n{text}<|im_end|>\n"
        for role, text in (("system", "Think."), ("user", f"{ORDER[1]} Box it."))
    )
    room = 200 - len(tokenizer.encode(prompt + "<|im_start|>assistant\n").ids)
    sent = {name: value for name, value in body.items() if name != "messages"}
    assert sent == {
        "model": "policy",
        "n": 4,
        "seed": 104,
        "max_tokens": room,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "stream": False,
        "return_token_ids": True,
    }


def test_token_ids_are_taken_as_drawn(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    tokenizer = Tokenizer.from_file(str(inputs["policy"] / "tokenizer.json"))
    # Byte by byte: ids that encoding the text would never give.
    server.encode = lambda text: [i for c in text for i in tokenizer.encode(c).ids]
    longer = CONFIG.model_copy(update={"max_new_tokens": 60})
    counts = sample(longer, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    for row in rows_of(tmp_path):
        assert row["token_ids"] == [*server.encode(row["response"]), 2]
        assert row["token_ids"] != [*tokenizer.encode(row["response"]).ids, 2]
        assert row["n_tokens"] == len(row["token_ids"])
        assert row["response"].endswith("</answer>")
    assert counts.info["retokenised"] == 0


def test_failures_that_pass_are_asked_again(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    server.failures = {
        ORDER[0]: [status(500), drop],
        ORDER[1]: [status(429, {"retry-after": "0"}), status(503)],
        ORDER[2]: [lambda handler, body: send(handler, 200, {"choices": []}) or True],
    }
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert len(server.asked) == 3 + 2 + 2 + 1
    assert counts.kept == 12
    assert counts.info["finish_reasons"] == {"stop": 12}


def test_a_refused_request_is_a_recorded_failure_and_not_asked_again(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    server.failures = {ORDER[1]: [status(400)] * 9}
    made = context(tmp_path, server_urls=[server.url])
    counts = sample(PATIENT, inputs, tmp_path, made)
    assert len(server.asked) == 3
    failed = [row for row in rows_of(tmp_path) if row["finish_reason"] == "error"]
    assert [(row["problem_id"], row["sample_index"]) for row in failed] == [
        (problem_id(ORDER[1]), index) for index in range(4)
    ]
    assert all(row["response"] == "" and row["token_ids"] == [] for row in failed)
    assert (counts.kept, counts.info["failed"]) == (12, 4)
    assert any("status 400" in warning for warning in made.warnings)
    assert any("4 of 12" in warning and "incorrect" in warning for warning in made.warnings)


def test_what_fails_again_and_again_on_a_server_that_is_well_is_given_up(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    def hang(handler: Any, body: dict[str, Any]) -> bool:
        time.sleep(30)
        return True

    server.failures = {ORDER[0]: [hang] * 2, ORDER[2]: [status(500)] * 2}
    config = PATIENT.model_copy(update={"retries": 1, "request_timeout": 1.5})
    counts = sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["finish_reasons"] == {"error": 4, "stop": 4, "timeout": 4}


def test_too_many_failures_stop_the_stage(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    server.failures = {ORDER[0]: [status(400)]}
    config = CONFIG.model_copy(update={"max_failed": 0.33})
    with pytest.raises(StageError, match="4 of 12 responses failed.*max_failed 33%"):
        sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))


def test_as_many_failures_as_the_limit_are_accepted(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    server.failures = {ORDER[0]: [status(400)]}
    config = CONFIG.model_copy(update={"max_failed": 0.34})
    counts = sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["failed"] == 4


def test_a_resumed_run_asks_only_for_what_is_missing(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    # The server dies after one problem; the run stops and keeps what it has.
    server.failures = {ORDER[1]: [status(503)] * 9, ORDER[2]: [status(503)] * 9}
    config = CONFIG.model_copy(update={"concurrency": 1, "retries": 1})
    with pytest.raises(StageError, match="4 of 12 responses are kept"):
        sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    log = tmp_path / "responses.partial.jsonl"
    # The first line says which server answers, the last what failed.
    served, *lines, failed = log.read_text().splitlines()
    assert json.loads(served)["answered_by"]["url"] == server.url
    assert json.loads(failed)["retried"] == {"status 503": 2}
    assert len(lines) == 4
    # A kill took the response 2 of the first problem, and tore the last line.
    log.write_text("\n".join([lines[0], lines[1], lines[3]]) + "\n" + lines[2][:30])
    server.failures.clear()
    server.asked.clear()
    counts = sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    asked = [(body["messages"][0]["content"], body["n"], body["seed"]) for body in server.asked]
    assert asked == [(ORDER[0], 1, 102), (ORDER[1], 4, 104), (ORDER[2], 4, 108)]
    rows = rows_of(tmp_path)
    assert counts.kept == len({(row["problem_id"], row["sample_index"]) for row in rows}) == 12
    assert [row["response"][7:10] for row in rows] == [str(100 + i) for i in range(12)]
    assert not log.exists()


def test_what_was_late_is_asked_again_with_more_time_and_nothing_else_is(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    server.failures = {ORDER[0]: [wait(3.0)], ORDER[2]: [wait(3.0)]}
    hurried = CONFIG.model_copy(
        update={"concurrency": 1, "retries": 0, "request_timeout": 1.0, "max_failed": 0.34}
    )
    # Four late responses of twelve are within the limit, and are recorded; eight are too many.
    with pytest.raises(StageError) as caught:
        sample(hurried, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert "8 of 12 responses failed, the limit is max_failed 34%" in str(caught.value)
    assert "Raise request_timeout, which is 1 s, and run again: nothing is lost" in str(
        caught.value
    )
    server.asked.clear()
    patient = hurried.model_copy(update={"request_timeout": 20.0})
    assert patient.hashed() == hurried.hashed()
    counts = sample(patient, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    asked = [(body["messages"][0]["content"], body["n"], body["seed"]) for body in server.asked]
    assert asked == [(ORDER[0], 4, 100), (ORDER[2], 4, 108)]
    assert counts.info["finish_reasons"] == {"stop": 12}
    assert counts.info["asked_again"] == {"timeout": 4}
    assert [row["response"][7:10] for row in rows_of(tmp_path)] == [str(100 + i) for i in range(12)]


def test_greedy_asks_for_one_response_at_a_time(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    # vLLM refuses n > 1 at temperature 0.
    config = CONFIG.model_copy(update={"temperature": 0.0})
    counts = sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert {body["n"] for body in server.asked} == {1}
    assert len(server.asked) == counts.kept == 12


def test_several_servers_share_the_work_and_cover_for_each_other(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    second = CompletionServer({text: [status(500)] * 9 for text in PROBLEMS})
    try:
        urls = [second.url, server.url]
        counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=urls))
        assert second.asked
    finally:
        second.stop()
    assert counts.info["finish_reasons"] == {"stop": 12}
    assert {row["server"] for row in rows_of(tmp_path)} == {server.url}


def test_requests_overlap_up_to_the_concurrency(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    # Each request waits for the two others: alone they would never get past the barrier.
    barrier = threading.Barrier(3, timeout=5)
    wait = lambda handler, body: barrier.wait() < 0  # noqa: E731
    server.failures = {text: [wait] for text in PROBLEMS}
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert (counts.kept, len(server.asked)) == (12, 3)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([{"id": "other"}], "offers other, not 'policy'.*--served-model-name policy"),
        ([{"id": "policy", "max_model_len": 64}], "64 tokens of context.*--max-model-len 200"),
    ],
)
def test_a_server_of_another_model_or_context_is_refused(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, models: Any, message: str
) -> None:
    server.models = models
    with pytest.raises(StageError, match=message):
        sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert not server.asked


def test_no_server_says_how_to_start_one(inputs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(StageError, match="vllm serve.*server_urls.*engine: local"):
        sample(CONFIG, inputs, tmp_path, context(tmp_path))
    with pytest.raises(StageError, match="no answer. Start the server"):
        sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=["http://127.0.0.1:9/v1"]))


def test_a_server_that_hides_the_thinking_is_refused(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    server.answers = {"message": {"content": "8", "reasoning_content": "3 + 5"}}
    with pytest.raises(StageError, match="--reasoning-parser"):
        sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))


def test_other_prompts_than_ours_are_told(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    plain = server.completion
    server.completion = lambda body: {**plain(body), "usage": {"prompt_tokens": 3}}  # type: ignore[method-assign]
    made = context(tmp_path, server_urls=[server.url])
    sample(CONFIG, inputs, tmp_path, made)
    assert any("chat template" in warning for warning in made.warnings)


def test_the_log_holds_one_line_a_response(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(
        "pcl_reasoner.inference.response_log.ResponseLog.delete", lambda self: self.close()
    )
    sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    _, *lines = (tmp_path / "responses.partial.jsonl").read_text().splitlines()
    keys = [(r["problem_id"], r["sample_index"]) for r in map(json.loads, lines)]
    assert len(keys) == len(set(keys)) == 12
