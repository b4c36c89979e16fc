"""Odd answers of a server: each is a failure of its request, retried and counted, no traceback."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from completion_server import CompletionServer
from odd_answers import GZIP, MORE, ODD, raw
from sample_helpers import PROBLEMS, context, rows_of

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


@pytest.mark.parametrize("name", ODD)
def test_one_odd_answer_is_asked_again(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, name: str
) -> None:
    server.failures = {FIRST: [ODD[name]]}
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["finish_reasons"] == {"stop": 6}
    assert sum(counts.info["retried"].values()) == 1
    assert len({(row["problem_id"], row["sample_index"]) for row in rows_of(tmp_path)}) == 6


@pytest.mark.parametrize("name", MORE)
def test_one_that_may_be_understood(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, name: str
) -> None:
    server.failures = {FIRST: [MORE[name]]}
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["finish_reasons"] == {"stop": 6}
    assert all("\\boxed{8}" in row["response"] for row in rows_of(tmp_path))


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


UNUSABLE = ["html", "one choice too few", "status 500", "token_ids text"]
BROKEN = ["cut off", "dropped", "headers only", "no HTTP", "broken chunks", "redirect elsewhere"]


@pytest.mark.parametrize("name", [*UNUSABLE, *BROKEN])
def test_a_server_whose_first_answers_are_all_unusable_is_given_up(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, name: str
) -> None:
    """Without this the stage would try for hours: every request up to its retries."""
    server.failures = {problem: [{**ODD, **MORE}[name]] * 99 for problem in PROBLEMS}
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
