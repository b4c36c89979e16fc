"""Every start of a server is compared with the proof before it is asked; the servers are real."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from completion_server import send
from log_prob_server import answer_with
from perplexity_helpers import SERVER, response, write_inputs
from perplexity_helpers import run as run_perplexity
from proved_server import ProvedServer, write_proof
from sample_helpers import context, model_folder
from servers import all_gone, serving, starts, wait_for

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts
from pcl_reasoner.sample.stage import SampleConfig, sample

CONFIG = SampleConfig(
    engine="server", n=4, max_new_tokens=40, max_model_len=200, seed=100, top_k=0, concurrency=1
)
TEXTS = [5, 60, 70, 80]
"""Lengths of the proof's texts that are compared."""


@pytest.fixture
def proved(inputs: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    proof = write_proof(tmp_path / "prove-12345678", inputs["policy"])
    return {**inputs, "proof": proof}


@pytest.fixture
def make() -> Iterator[Callable[..., ProvedServer]]:
    servers: list[ProvedServer] = []

    def one(**keys: Any) -> ProvedServer:
        servers.append(ProvedServer(**keys))
        return servers[-1]

    yield one
    for server in servers:
        server.stop()


def draw(inputs: dict[str, Path], folder: Path, *servers: ProvedServer, **config: Any) -> Counts:
    there = context(folder, server_urls=[server.url for server in servers])
    return sample(CONFIG.model_copy(update=config), inputs, folder, there)


def test_each_server_is_compared_once_before_it_is_asked(
    proved: dict[str, Path], tmp_path: Path, make: Callable[..., ProvedServer]
) -> None:
    servers = [make(started=7.5), make(started=None)]
    counts = draw(proved, tmp_path / "out", *servers, concurrency=2)
    assert counts.kept == 12
    for server in servers:
        # The texts come first, and only once.
        assert server.texts == TEXTS
        assert all("prompt" in body for body in server.asked[: len(TEXTS)])
    assert sum(server.questions for server in servers) == 3
    compared = sorted(counts.info["compared"], key=lambda one: one["url"])
    assert [one["url"] for one in compared] == sorted(server.url for server in servers)
    assert {one["started"] for one in compared} == {7.5, None}
    assert {one["tokens"] for one in compared} == {4 + 59 + 69 + 79}
    assert {one["proof"] for one in compared} == {"prove-12345678"}
    assert max(one["largest"] for one in compared) < 1e-6


def test_without_a_proof_nothing_is_compared(
    inputs: dict[str, Path], tmp_path: Path, make: Callable[..., ProvedServer]
) -> None:
    server = make()
    assert "compared" not in draw(inputs, tmp_path / "out", server).info
    assert server.texts == []


def test_a_server_that_computes_something_else_is_not_asked_and_nor_is_any_other(
    proved: dict[str, Path], tmp_path: Path, make: Callable[..., ProvedServer]
) -> None:
    sound, other = make(), make()
    other.shift = 0.5
    with pytest.raises(StageError, match="does not compute what the trained") as raised:
        draw(proved, tmp_path / "out", sound, other)
    text = str(raised.value)
    assert text.startswith(f"{other.url}: ")
    assert "211 tokens in 4 texts of the proof differ by 0.5 nats on average" in text
    assert "(limit 0.0001)" in text and "largest 0.5 (limit 0.01)" in text
    assert "Its log is where you ran it: this stage did not start it." in text
    assert f"{proved['proof']}/proof.json" in text and "--from prove" in text
    assert sound.questions == other.questions == 0


def test_a_start_that_is_known_is_not_compared_again_after_a_failure(
    proved: dict[str, Path], tmp_path: Path, make: Callable[..., ProvedServer]
) -> None:
    def busy(handler: Any, body: dict[str, Any]) -> bool:
        send(handler, 503, {"message": "busy"})
        return True

    for started, times in ((7.5, 1), (None, 2)):
        server = make(started=started, failures={"7 + 1?": [busy]})
        counts = draw(proved, tmp_path / str(times), server)
        assert counts.info["retried"] == {"status 503": 1}
        # A server that tells no start time may have been started again.
        assert server.texts == TEXTS * times
        assert len(counts.info["compared"]) == 1


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_a_server_that_somebody_restarts_is_compared_again_before_an_answer_is_used(
    proved: dict[str, Path], tmp_path: Path, make: Callable[..., ProvedServer], shift: float
) -> None:
    def restarts(handler: Any, body: dict[str, Any]) -> bool:
        # No request fails: the next one gets a good answer from another process.
        server.start(8.5, shift)
        return False

    server = make(failures={"7 + 1?": [restarts]}, started=7.5)
    if shift:
        with pytest.raises(StageError, match="does not compute what the trained"):
            draw(proved, tmp_path / "out", server)
        kept = (tmp_path / "out" / "responses.partial.jsonl").read_text()
        assert kept.count("sample_index") == 4 * (server.questions - 1)
        return
    counts = draw(proved, tmp_path / "out", server)
    assert (counts.kept, server.questions) == (12, 4)
    assert counts.info["retried"] == {"restarted": 1}
    assert [one["started"] for one in counts.info["compared"]] == [7.5, 8.5]


@pytest.mark.parametrize("shift", ["0", "0.5"])
def test_a_server_that_is_restarted_for_the_stage_is_compared_again(
    proved: dict[str, Path], tmp_path: Path, shift: str
) -> None:
    told = tmp_path / "shift"
    told.write_text("0")
    placement = serving(
        tmp_path,
        slow=2.0,
        program="stand_in_proved.py",
        environment={"STAND_IN_SHIFT": str(told)},
    )
    output = tmp_path / "sample-12345678.partial"
    log = output / "responses.partial.jsonl"

    def kill() -> None:
        wait_for(lambda: log.exists() and '"sample_index"' in log.read_text())
        told.write_text(shift)
        os.kill(starts(tmp_path)[0][0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    there = context(output, **placement)
    if shift == "0":
        counts = sample(CONFIG, proved, output, there)
        assert counts.kept == 12
        assert [one["restarts"] for one in counts.info["compared"]] == [0, 1]
    else:
        with pytest.raises(StageError, match="does not compute what the trained") as raised:
            sample(CONFIG, proved, output, there)
        file = tmp_path / "logs" / "sample-12345678.server.log"
        assert f"Its log: {file}." in str(raised.value)
    killer.join()
    assert len(starts(tmp_path)) == 2
    assert all_gone(tmp_path)


def test_a_proof_of_other_weights_and_a_server_without_log_probs_are_refused(
    proved: dict[str, Path],
    tmp_path: Path,
    make: Callable[..., ProvedServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = make()
    monkeypatch.setattr(server, "completion", lambda body: answer_with(None))
    with pytest.raises(StageError, match="gives no log-probs of a stored text of 5 tokens"):
        draw(proved, tmp_path / "a", server)
    other = model_folder(tmp_path / "other")
    (other / "config.json").write_text((other / "config.json").read_text() + " ")
    with pytest.raises(StageError, match="is a proof of weights"):
        draw({**proved, "policy": other}, tmp_path / "b", server)
    assert server.questions == 0


def test_the_stage_perplexity_compares_its_servers_too(
    proved: dict[str, Path], tmp_path: Path, make: Callable[..., ProvedServer]
) -> None:
    rows = [response(name, 0, [5, 6, 2]) for name in "ab"]
    inputs = write_inputs(tmp_path, proved["policy"], rows) | {"proof": proved["proof"]}
    server = make()
    counts = run_perplexity(inputs, tmp_path / "out", SERVER, server_urls=[server.url])
    (compared,) = counts.info["compared"]
    # The servers need take 64 tokens only, so the longer texts are cut, and all five are sent.
    assert compared["tokens"] == 4 + 59 + 63 + 63 + 63
    server.start(9.0, 0.5)
    with pytest.raises(StageError, match="does not compute what the trained"):
        run_perplexity(inputs, tmp_path / "again", SERVER, server_urls=[server.url])
