"""Odd answers of a server: each is a failure of its request, retried and counted, no traceback."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from completion_server import CompletionServer, Failure
from sample_helpers import PROBLEMS, context

from pcl_reasoner.answers import exchange
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.curate import problem_id
from pcl_reasoner.inference import fleet
from pcl_reasoner.sample.stage import SampleConfig, sample

CONFIG = SampleConfig(
    engine="server",
    n=2,
    max_new_tokens=40,
    max_model_len=200,
    seed=100,
    top_k=0,
    concurrency=2,
    retries=2,
    max_failed=0.4,
    request_timeout=3.0,
)
FIRST = min(PROBLEMS, key=problem_id)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.01)


def raw(data: bytes, headers: dict[str, str] | None = None, status: int = 200) -> Failure:
    """Answer with these bytes."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        handler.send_response(status)
        for name, value in (headers or {"Content-Type": "application/json"}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        return True

    return answer


def changed(change: Callable[[dict[str, Any]], object]) -> Failure:
    """Answer with a good answer, changed in place."""

    def answer(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
        value = handler.server.completion(body)  # type: ignore[attr-defined]
        change(value)
        return raw(json.dumps(value).encode())(handler, body)

    return answer


def choice(**fields: Any) -> Failure:
    """Answer with other fields in every choice."""
    return changed(lambda value: [one.update(fields) for one in value["choices"]])


def drip(handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> bool:
    """Send a byte now and then, for longer than the request may take."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    end = time.monotonic() + 8
    try:
        while time.monotonic() < end:
            handler.wfile.write(b" ")
            time.sleep(0.2)
    except OSError:
        pass
    return True


HTML = b"<html><body>Sign in to continue</body></html>"
GZIP = {"Content-Encoding": "gzip"}
ODD: dict[str, Failure] = {
    "html": raw(HTML, {"Content-Type": "text/html"}),
    "empty": raw(b""),
    "number": raw(b"7"),
    "list": raw(b"[]"),
    "null": raw(b"null"),
    "text": raw(b'"hello"'),
    "not UTF-8": raw(b"\xff\xfe{"),
    "cut JSON": raw(b'{"choices": ['),
    "NaN": raw(b'{"choices": NaN}'),
    "nested": raw(b"[" * 200_000),
    "nested choice": raw(b'{"choices": [' + b"[" * 200_000),
    "gzip that is none": raw(b"plain", GZIP),
    "gzip cut": raw(gzip.compress(b'{"choices": []}')[:-4], GZIP),
    "choices null": raw(b'{"choices": null}'),
    "choices a number": raw(b'{"choices": 3}'),
    "choices a mapping": raw(b'{"choices": {"0": {}}}'),
    "choices of numbers": raw(b'{"choices": [1, 2]}'),
    "one choice too few": changed(lambda value: value["choices"].pop()),
    "one choice too many": changed(lambda value: value["choices"].append({"index": 2})),
    "index text": choice(index="x"),
    "index NaN": choice(index=float("nan")),
    "index list": choice(index=[1]),
    "index twice": choice(index=0),
    "index too large": choice(index=7),
    "message text": choice(message="8"),
    "message list": choice(message=[]),
    "content list": choice(message={"content": [{"type": "text", "text": "8"}]}),
    "content number": choice(message={"content": 8}),
    "content null": choice(message={"content": None}),
    "no message": choice(message=None),
    "reasoning number": choice(message={"content": "8", "reasoning": 8}),
    "token_ids text": choice(token_ids="abc"),
    "token_ids of text": choice(token_ids=["a"]),
    "token_ids negative": choice(token_ids=[-1]),
    "token_ids huge": choice(token_ids=[1 << 31]),
    "token_ids real": choice(token_ids=[1.5]),
    "token_ids true": choice(token_ids=[True]),
    "token_ids unknown": choice(token_ids=[1 << 30]),
    "token_ids empty": choice(token_ids=[]),
    "token_ids nested": choice(token_ids=[[1]]),
    "finish_reason null": choice(finish_reason=None),
    "finish_reason error": choice(finish_reason="error"),
    "finish_reason abort": choice(finish_reason="abort"),
    "finish_reason number": choice(finish_reason=3),
    "finish_reason mapping": choice(finish_reason={"type": "stop"}),
    "finish_reason long": choice(finish_reason="x" * 5000),
    "usage list": changed(lambda value: value.update(usage=[1])),
    "usage text": changed(lambda value: value.update(usage={"prompt_tokens": "x"})),
    "prompt_token_ids text": changed(lambda value: value.update(prompt_token_ids="abc")),
    "prompt_token_ids of text": changed(lambda value: value.update(prompt_token_ids=["a"])),
    "status 500": raw(b"oh", status=500),
    "status 200 and an error": raw(b'{"error": {"message": "no"}}'),
    "Retry-After of a digit that is none": raw(b"", {"Retry-After": "²"}, 500),
    "drip": drip,
}


def rows_of(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output / "responses/part-00000.parquet").to_pylist()
    return rows


@pytest.mark.parametrize("name", ODD)
def test_one_odd_answer_is_asked_again(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, name: str
) -> None:
    server.failures = {FIRST: [ODD[name]]}
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["finish_reasons"] == {"stop": 6}
    assert sum(counts.info["retried"].values()) == 1
    assert len({(row["problem_id"], row["sample_index"]) for row in rows_of(tmp_path)}) == 6


FEW = ("html", "nested", "token_ids unknown", "content null", "finish_reason null", "usage list")


@pytest.mark.parametrize("name", FEW)
def test_one_that_stays_odd_is_counted_and_shown(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, name: str
) -> None:
    server.failures = {FIRST: [ODD[name]] * 99}
    made = context(tmp_path, server_urls=[server.url])
    config = CONFIG.model_copy(update={"concurrency": 1, "max_failed": 0.34})
    counts = sample(config, inputs, tmp_path, made)
    assert counts.info["failed"] == 2
    assert any(f"problem {problem_id(FIRST)}: request failed for good" in w for w in made.warnings)
    with pytest.raises(StageError, match="2 of 6 responses failed, the limit is max_failed 20%"):
        again = tmp_path / "again"
        again.mkdir()
        strict = config.model_copy(update={"max_failed": 0.2})
        sample(strict, inputs, again, context(again, server_urls=[server.url]))


def test_the_first_bytes_are_shown(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    server.failures = {problem: [ODD["html"]] * 99 for problem in PROBLEMS}
    with pytest.raises(StageError) as caught:
        sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert "Sign in to continue" in str(caught.value)


@pytest.mark.parametrize("name", ["html", "one choice too few", "status 500", "token_ids text"])
def test_a_server_whose_first_answers_are_all_unusable_is_given_up(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, name: str
) -> None:
    """Without this the stage would try for hours: every request up to its retries."""
    server.failures = {problem: [ODD[name]] * 99 for problem in PROBLEMS}
    patient = CONFIG.model_copy(update={"retries": 50, "max_failed": 1.0})
    with pytest.raises(StageError, match="none of its first answers could be used. The last: "):
        sample(patient, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert len(server.asked) <= 8


def test_another_server_does_the_work_of_one_that_is_given_up(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    other = CompletionServer({problem: [ODD["html"]] * 99 for problem in PROBLEMS})
    urls = [other.url, server.url]
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=urls))
    other.stop()
    assert counts.info["finish_reasons"] == {"stop": 6}


def test_half_of_the_requests_refused_is_too_much(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    """3 problems of 2 responses; two thirds refused, and the default limit is 5 %."""
    refused = sorted(PROBLEMS)[:2]
    server.failures = {problem: [raw(b"no", status=400)] for problem in refused}
    config = CONFIG.model_copy(update={"max_failed": 0.05})
    with pytest.raises(StageError, match="2 of 6 responses failed, the limit is max_failed 5%"):
        sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))


def test_an_answer_has_a_limit_of_bytes(
    inputs: dict[str, Path],
    tmp_path: Path,
    server: CompletionServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "SMALL_BYTES", 1 << 16)
    bomb = raw(gzip.compress(b" " * (4 << 20)), GZIP)
    server.failures = {FIRST: [bomb] * 99}
    made = context(tmp_path, server_urls=[server.url])
    config = CONFIG.model_copy(update={"concurrency": 1})
    assert sample(config, inputs, tmp_path, made).info["failed"] == 2
    # 2 responses of 40 tokens: 65,536 + 2 · 40 · 512
    assert any("an answer of more than 106,496 bytes" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    ("page", "value"),
    [
        ("/metrics", "vllm:num_requests_running abc\n"),
        ("/metrics", "vllm:num_requests_running nan\nvllm:num_requests_waiting 1e999\n"),
        ("/version", [1]),
        ("/version", {"version": 3}),
    ],
)
def test_odd_pages_do_not_matter(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, page: str, value: Any
) -> None:
    server.pages = {page: lambda: value}
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["finish_reasons"] == {"stop": 6}


@pytest.mark.parametrize(
    "models",
    [
        [{"id": "policy", "max_model_len": "256"}],
        [{"id": "policy", "max_model_len": None, "root": None}],
        [{"id": ["policy"]}],
        [3],
        [],
    ],
)
def test_odd_lists_of_models(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, models: list[Any]
) -> None:
    server.models = models
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["finish_reasons"] == {"stop": 6}


def test_a_lone_surrogate_is_replaced(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    """Asked again it would come again, at the same seed."""
    server.text = "\ud800 {seed}"
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["finish_reasons"] == {"stop": 6}
    assert rows_of(tmp_path)[0]["response"].startswith("? 10")
