"""Keys that servers ask for: where they come from, and who is shown them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from completion_server import CompletionServer
from sample_helpers import context

from pcl_reasoner.errors import StageError
from pcl_reasoner.sample.addresses import addresses
from pcl_reasoner.sample.stage import SampleConfig, sample

CONFIG = SampleConfig(engine="server", n=2, max_tokens=40, max_model_len=200, concurrency=4)


@pytest.fixture
def locked() -> Iterator[CompletionServer]:
    one = CompletionServer()
    one.key = "s3cret"
    yield one
    one.stop()


def test_every_request_shows_the_key_and_another_server_never_sees_it(
    inputs: dict[str, Path],
    tmp_path: Path,
    locked: CompletionServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCKED", "s3cret")
    # As vLLM has them; these are asked without a key by others, and a gateway may want it there.
    locked.pages = {"/version": lambda: {"version": "1"}, "/metrics": str}
    other = CompletionServer()
    urls = [f"{locked.url}/", other.url]
    made = context(tmp_path, server_urls=urls, api_keys={locked.url: "LOCKED"})
    counts = sample(CONFIG, inputs, tmp_path, made)
    other.stop()
    assert counts.kept == 6
    assert locked.asked and other.asked
    assert locked.shown == {"Bearer s3cret"}
    assert other.shown == {None}
    # Neither in what is kept nor in what is told.
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert kept and not any(b"s3cret" in data for data in kept)


@pytest.mark.parametrize("value", [None, "another"])
def test_a_server_that_wants_another_key_stops_the_stage_before_anything_is_asked(
    inputs: dict[str, Path],
    tmp_path: Path,
    locked: CompletionServer,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
) -> None:
    placement = {"server_urls": [locked.url]}
    if value:
        monkeypatch.setenv("LOCKED", value)
        placement |= {"api_keys": {locked.url: "LOCKED"}}
    expected = r"status 401.*another key: name the environment variable.*api_keys: \{http://"
    with pytest.raises(StageError, match=expected):
        sample(CONFIG, inputs, tmp_path, context(tmp_path, **placement))
    assert locked.asked == []


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = {
        "server_urls": ["http://a:8000/v1/", "http://b:8000/v1"],
        "judge_urls": ["https://c/v1"],
        "api_keys": {"http://a:8000/v1": "KEY_A", "https://c/v1": "KEY_C"},
    }
    monkeypatch.setenv("KEY_A", "one")
    assert addresses(placement, "server_urls") == {
        "http://a:8000/v1": "one",
        "http://b:8000/v1": None,
    }
    monkeypatch.setenv("KEY_C", "")
    with pytest.raises(StageError, match="https://c/v1 asks for a key.* no KEY_C: export KEY_C="):
        addresses(placement, "judge_urls")
    assert addresses({}, "judge_urls") == {}
