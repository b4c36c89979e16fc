"""Keys that servers ask for: where they come from, and who is shown them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from completion_server import CompletionServer
from sample_helpers import context

from pcl_reasoner.answers.failures import check_key
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.inference.addresses import addresses
from pcl_reasoner.inference.fleet import Fleet
from pcl_reasoner.sample.stage import SampleConfig, sample

CONFIG = SampleConfig(engine="server", n=2, max_new_tokens=40, max_model_len=200, concurrency=4)


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
    # Nor is it in what is kept.
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


def test_the_nearest_url_has_its_own_key_and_one_of_a_url_is_left_alone() -> None:
    """Two behind one gateway, one on the default port, and a user's name in a URL."""
    shown: dict[str, str | None] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        shown[str(request.url)] = request.headers.get("authorization")
        return httpx.Response(200, json={})

    urls = {
        "https://gw/judge/v1": "b",
        "https://gw/v1": "a",
        "https://gw/free/v1": None,
        "http://HOST:80/v1": "c",
        "http://user:pass@basic/v1": None,
    }
    asked = ["https://gw/judge/v1", "https://gw/v1", "https://gw/free/v1", "http://host/v1"]

    async def ask() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            Fleet(urls, CONFIG, http)
            for url in [*asked, "http://user:pass@basic/v1", "https://gwen/v1"]:
                await http.get(f"{url}/models")

    asyncio.run(ask())
    assert [shown.get(f"{url}/models") for url in asked] == [
        "Bearer b",
        "Bearer a",
        None,
        "Bearer c",
    ]
    assert shown["http://user:pass@basic/v1/models"] == "Basic dXNlcjpwYXNz"
    assert shown["https://gwen/v1/models"] is None


def test_a_gateway_that_opens_completions_alone_is_asked(
    inputs: dict[str, Path],
    tmp_path: Path,
    locked: CompletionServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCKED", "s3cret\r\n")
    locked.closed = ("/v1/models", "/version", "/metrics")
    made = context(tmp_path, server_urls=[locked.url], api_keys={locked.url: "LOCKED"})
    assert sample(CONFIG, inputs, tmp_path, made).kept == 6


def test_a_refusal_that_repeats_the_key_does_not_show_it() -> None:
    request = httpx.Request("POST", "http://a/v1", headers={"authorization": "Bearer s3cret"})
    answer = httpx.Response(403, text="no such key: s3cret", request=request)
    with pytest.raises(StageError, match="status 403: no such key: …") as caught:
        check_key("http://a/v1", answer)
    assert "s3cret" not in str(caught.value)


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = Placement(
        server_urls=["http://a:8000/v1/", "http://b:8000/v1"],
        judge_urls=["https://c/v1"],
        api_keys={"http://a:8000/v1": "KEY_A", "https://c/v1": "KEY_C"},
    )
    monkeypatch.setenv("KEY_A", "one")
    assert addresses(placement.server_urls, placement) == {
        "http://a:8000/v1": "one",
        "http://b:8000/v1": None,
    }
    monkeypatch.setenv("KEY_C", "")
    with pytest.raises(
        StageError, match="https://c/v1 needs a key, but KEY_C is not set: export KEY_C="
    ):
        addresses(placement.judge_urls, placement)
    assert addresses([], Placement()) == {}
