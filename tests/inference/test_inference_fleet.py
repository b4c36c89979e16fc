from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from completion_server import CompletionServer, cut_off, status, vllm_error, wait
from sample_helpers import PROBLEMS, context, problems_folder

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.curate import problem_id
from pcl_reasoner.inference import fleet, fleet_keeper, fleet_server
from pcl_reasoner.inference.fleet import Fleet
from pcl_reasoner.inference.fleet_server import Load, Server
from pcl_reasoner.sample.stage import SampleConfig, sample

CONFIG = SampleConfig(
    engine="server", n=4, max_new_tokens=40, max_model_len=200, seed=100, top_k=0, concurrency=3
)
ORDER = sorted(PROBLEMS, key=problem_id)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.01)


def many_problems(folder: Path, count: int) -> Path:
    return problems_folder(folder, [f"{i} + 1?" for i in range(count)])


def rows_of(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output / "responses/part-00000.parquet").to_pylist()
    return rows


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (status(429, {"retry-after": "0"}), "status 429"),
        (vllm_error(404), "status 404"),
        (vllm_error(500), "status 500"),
        (cut_off, "connection"),
        (wait(30), "timeout"),
    ],
)
def test_a_failure_is_retried_and_counted_by_its_kind(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, failure: Any, kind: str
) -> None:
    server.failures = {ORDER[1]: [failure]}
    config = CONFIG.model_copy(update={"request_timeout": 1.5})
    counts = sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert len(rows_of(tmp_path)) == counts.kept == 12
    assert counts.info["finish_reasons"] == {"stop": 12}
    assert counts.info["retried"] == {kind: 1}
    assert "failures" not in counts.info


@pytest.mark.parametrize(
    ("failure", "kind", "reason", "asked"),
    [
        (vllm_error(400), "status 400", "error", 1),
        (vllm_error(500), "status 500", "error", 2),
        (cut_off, "connection", "error", 2),
        (wait(30), "timeout", "timeout", 2),
    ],
)
def test_what_fails_for_good_is_recorded_by_its_kind(
    inputs: dict[str, Path],
    tmp_path: Path,
    server: CompletionServer,
    failure: Any,
    kind: str,
    reason: str,
    asked: int,
) -> None:
    server.failures = {ORDER[1]: [failure] * 9}
    update = {"request_timeout": 1.5, "retries": 1, "max_failed": 1.0}
    config = CONFIG.model_copy(update=update)
    counts = sample(config, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["failures"] == {kind: 4}
    assert counts.info["finish_reasons"] == {"stop": 8, reason: 4}
    bodies = [body for body in server.asked if body["messages"][-1]["content"] == ORDER[1]]
    assert len(bodies) == asked
    keys = [(row["problem_id"], row["sample_index"]) for row in rows_of(tmp_path)]
    assert len(keys) == len(set(keys)) == 12


def test_a_server_that_lost_the_model_is_no_wrong_answer(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    def unload(handler: Any, body: dict[str, Any]) -> bool:
        server.models = [{"id": "other"}]
        return vllm_error(404)(handler, body)

    server.failures = {text: [unload] * 9 for text in PROBLEMS}
    with pytest.raises(StageError, match="status 404.*0 of 12 responses are kept"):
        sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))


def test_one_of_two_servers_is_lost_in_mid_run_and_no_work_with_it(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    second = CompletionServer()

    def die(handler: Any, body: dict[str, Any]) -> bool:
        second.server_close()  # no connection from now on
        return cut_off(handler, body)

    problems = many_problems(tmp_path / "p", 24)
    texts = [f"{i} + 1?" for i in range(24)]
    for text in texts:
        server.failures[text] = [wait(0.02)]
        second.failures[text] = [wait(0.02)]
    late = sorted(texts, key=problem_id)[8:]
    second.failures.update({text: [die] * 9 for text in late})
    output = tmp_path / "out"
    made = context(output, server_urls=[second.url, server.url])
    counts = sample(CONFIG, {**inputs, "problems": problems}, output, made)
    second.shutdown()
    assert counts.info["finish_reasons"] == {"stop": 96}
    by_server = {row["server"] for row in rows_of(output)}
    assert by_server == {second.url, server.url}
    # A dead server is tried again ever more seldom, not by every request.
    assert counts.info["retried"]["connection"] < 12


def test_work_goes_to_the_server_with_the_most_room(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    slow = CompletionServer()
    problems = many_problems(tmp_path / "p", 24)
    for text in [f"{i} + 1?" for i in range(24)]:
        server.failures[text] = [wait(0.02)]
        slow.failures[text] = [wait(2.0)]
    output = tmp_path / "out"
    config = CONFIG.model_copy(update={"concurrency": 4})
    made = context(output, server_urls=[slow.url, server.url])
    sample(config, {**inputs, "problems": problems}, output, made)
    slow.stop()
    # Taken in turn they would have 12 each, and the slow one would end long after the other.
    assert 1 <= len(slow.asked) <= 6
    assert len(slow.asked) + len(server.asked) == 24


def test_the_longest_expected_are_asked_first_with_the_seeds_of_their_places(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    lengths = {ORDER[0]: 10.0, ORDER[1]: 30.0, ORDER[2]: 20.0}
    rows = [
        {"problem_id": problem_id(text), "problem": text, "mean_cot_tokens": length}
        for text, length in lengths.items()
    ]
    (tmp_path / "p").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p" / "clean.parquet")
    config = CONFIG.model_copy(update={"concurrency": 1})
    made = context(tmp_path / "out", server_urls=[server.url])
    sample(config, {**inputs, "problems": tmp_path / "p"}, tmp_path / "out", made)
    asked = [(body["messages"][0]["content"], body["seed"]) for body in server.asked]
    assert asked == [(ORDER[1], 104), (ORDER[2], 108), (ORDER[0], 100)]


def metrics(running: float, waiting: float) -> str:
    """Two engines' gauges, as vLLM 0.32 prints them, with a name that only looks alike."""
    return "".join(
        f'vllm:num_requests_{name}{{engine="{engine}",model_name="policy"}} {value / 2}\n'
        f'vllm:num_requests_{name}_by_reason{{engine="{engine}",reason="capacity"}} 999.0\n'
        for name, value in (("running", running), ("waiting", waiting))
        for engine in (0, 1)
    )


def levels(
    inputs: dict[str, Path], folder: Path, server: CompletionServer, waiting: float, looks: int
) -> list[int]:
    """How many requests a server had, itself included, as each came.

    It answers none before it was asked for its queue so often.
    """
    lock, seen, looked = threading.Lock(), [], [0]
    open_now, answering = [0], threading.Event()

    def hold(handler: Any, body: dict[str, Any]) -> bool:
        with lock:
            open_now[0] += 1
            seen.append(open_now[0])
        answering.wait(20)
        with lock:
            open_now[0] -= 1
        return False

    def page() -> str:
        looked[0] += 1
        if looked[0] > looks:
            answering.set()
        return metrics(16, waiting)

    problems = many_problems(folder / "p", 60)
    server.failures = {f"{i} + 1?": [hold] for i in range(60)}
    server.pages["/metrics"] = page
    config = CONFIG.model_copy(update={"concurrency": 24})
    made = context(folder / "out", server_urls=[server.url])
    counts = sample(config, {**inputs, "problems": problems}, folder / "out", made)
    assert counts.kept == 240
    return seen


def test_a_server_whose_queue_is_full_gets_fewer_requests(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fleet_keeper, "METRICS_SECONDS", 0.3)
    # The first look is before the start; what the second said is known before the third.
    seen = levels(inputs, tmp_path, server, waiting=400, looks=2)
    assert max(seen) > 1  # up to 24, as the recipe allows
    assert max(seen[-20:]) == 1


def test_a_server_without_a_queue_gets_more_requests(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fleet_keeper, "METRICS_SECONDS", 0.1)
    monkeypatch.setattr(fleet, "FIRST_LIMIT", 1)
    seen = levels(inputs, tmp_path, server, waiting=0, looks=12)
    assert seen[:3] == [1, 2, 3]
    assert max(seen) > 5


def test_limits_by_hand() -> None:
    settings = CONFIG.model_copy(update={"n": 8, "concurrency": 64})
    server = Server("http://a/v1", limit=44, outstanding=44)
    server.adapt(settings, 192, 160)
    # Up to 88 of 352 may wait, 72 more do: nine requests of eight too many.
    assert server.limit == 35
    # Twice as many until something has waited there; from then on an eighth more.
    server = Server("http://a/v1", limit=16, outstanding=16)
    server.adapt(settings, 128, 0)
    assert server.limit == 32
    server.outstanding = 32
    server.adapt(settings, 192, 16)
    server.adapt(settings, 256, 0)
    assert server.limit == 36
    server = Server("http://a/v1", limit=60, outstanding=60)
    server.adapt(settings, 480, 0)
    assert server.limit == 64
    # Not full: that nothing waits says nothing of what it could take.
    server = Server("http://a/v1", limit=32, outstanding=10)
    server.adapt(settings, 80, 0)
    assert server.limit == 32
    # A little waits: as it should be.
    server = Server("http://a/v1", limit=32, outstanding=32)
    server.adapt(settings, 240, 16)
    assert server.limit == 32


def test_the_queue_is_summed_over_engines(server: CompletionServer) -> None:
    async def queue() -> Any:
        async with httpx.AsyncClient(trust_env=False) as http:
            one = Fleet({server.url: None}, CONFIG, http)
            before = await one.servers[0].load(http)
            server.pages["/metrics"] = lambda: metrics(12, 6)
            return before, await one.servers[0].load(http)

    assert asyncio.run(queue()) == (None, (12.0, 6.0, None))


TOKENS = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
vllm:num_requests_running{engine="0",model_name="policy"} 2.0
vllm:prompt_tokens_total{engine="0",model_name="policy"} 1.234567e+06
vllm:prompt_tokens_total{engine="1",model_name="policy"} 3.0
vllm:prompt_tokens_created{engine="0",model_name="policy"} 1.79e+09
vllm:prompt_tokens_cached_total{engine="0",model_name="policy"} 777.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="policy",source="local"} 555.0
vllm:generation_tokens_total{engine="0",model_name="policy"} 40.0
vllm:request_generation_tokens_sum{engine="0",model_name="policy"} 999.0
"""


def test_tokens_are_summed_over_engines(server: CompletionServer) -> None:
    async def load() -> Any:
        async with httpx.AsyncClient(trust_env=False) as http:
            server.pages["/metrics"] = lambda: TOKENS
            return await Fleet({server.url: None}, CONFIG, http).servers[0].load(http)

    assert asyncio.run(load()) == (2.0, 0.0, 1234567 + 3 + 40)


def test_a_stall_is_timed_from_the_last_token_or_the_last_idle_moment() -> None:
    server = Server("http://a/v1")

    def stalled(now: float, tokens: float | None, outstanding: int, is_asked: bool = True) -> float:
        server.outstanding = outstanding
        # The gauges may say that there is nothing to do.
        return server.stalled_for(Load(0, 0, tokens), is_asked, now)

    assert stalled(100, 5, outstanding=0) == 0
    assert stalled(700, 5, outstanding=0) == 0  # nothing to do
    assert stalled(702, 5, outstanding=2) == 2  # asked since 700 at the earliest
    assert stalled(750, 6, outstanding=2) == 0  # a token
    assert stalled(1349, 6, outstanding=2) == 599
    assert stalled(1350, 6, outstanding=1) == 600
    assert stalled(1400, 6, outstanding=1, is_asked=False) == 0  # it is given weights
    assert stalled(1500, 6, outstanding=1) == 100
    assert stalled(1501, None, outstanding=1) == 0  # it does not say
    server.up = False
    assert stalled(1600, None, outstanding=1) == 0
    assert server.stall_seconds == 600


def hangs(server: CompletionServer, requests: int) -> None:
    """Let a server of somebody else answer some requests, and then none; it stays healthy."""
    answered = [0]

    def count(handler: Any, body: dict[str, Any]) -> bool:
        with server.lock:
            answered[0] += 1
        if answered[0] > requests:
            time.sleep(20)
        return False

    server.failures = {f"{i} + 1?": [count] * 9 for i in range(60)}
    tokens = 'vllm:generation_tokens_total{engine="0",model_name="policy"} '
    server.pages["/metrics"] = lambda: metrics(1, 0) + f"{tokens}{min(answered[0], requests)}.0\n"


def test_a_running_server_that_hangs_is_given_up_while_another_goes_on(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fleet_keeper, "METRICS_SECONDS", 0.2)
    monkeypatch.setattr(fleet_server, "STALL_SECONDS", 1.5)
    hangs(server, 3)
    other = CompletionServer()
    made = context(tmp_path / "out", server_urls=[server.url, other.url])
    problems = {**inputs, "problems": many_problems(tmp_path / "p", 30)}
    config = CONFIG.model_copy(update={"retries": 0, "concurrency": 4})
    counts = sample(config, problems, tmp_path / "out", made)
    other.stop()
    assert counts.info["finish_reasons"] == {"stop": 120}
    (warning,) = [one for one in made.warnings if "given up" in one]
    assert f"{server.url}: hangs: it has read and made no token for 1.5 s" in warning


def test_the_last_running_server_that_hangs_stops_the_stage(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fleet_keeper, "METRICS_SECONDS", 0.2)
    monkeypatch.setattr(fleet_server, "STALL_SECONDS", 1.5)
    hangs(server, 3)
    made = context(tmp_path / "out", server_urls=[server.url])
    problems = {**inputs, "problems": many_problems(tmp_path / "p", 30)}
    with pytest.raises(StageError, match="hangs: .* Restart it, and run again: earlier results"):
        sample(CONFIG, problems, tmp_path / "out", made)
    log = (tmp_path / "out" / "responses.partial.jsonl").read_text()
    assert log.count('"finish_reason": "stop"') == 12


def test_what_fails_together_is_one_failure_and_rests_double_up(monkeypatch: Any) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.5)

    async def rests() -> list[float]:
        one = Fleet({"http://a/v1": None}, CONFIG, httpx.AsyncClient())
        (server,) = one.servers
        clock = asyncio.get_running_loop().time
        found = []
        for _ in range(5):
            one.failed(server, None, overloaded=False)
            one.failed(server, None, overloaded=False)
            found.append(round(server.rests_until - clock(), 1))
            server.rests_until = 0.0
        assert server.failures == 5
        return found

    assert asyncio.run(rests()) == [0.5, 2.0, 8.0, 32.0, 60.0]


def test_a_server_that_went_away_stops_the_stage_before_every_request_has_tried(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    problems = many_problems(tmp_path / "p", 60)

    def gone(handler: Any, body: dict[str, Any]) -> bool:
        server.server_close()
        return cut_off(handler, body)

    server.failures = {f"{i} + 1?": [gone] * 9 for i in range(60)}
    config = CONFIG.model_copy(update={"concurrency": 20})
    made = context(tmp_path / "out", server_urls=[server.url])
    with pytest.raises(StageError, match="0 of 240 responses are kept"):
        sample(config, {**inputs, "problems": problems}, tmp_path / "out", made)


def test_a_busy_server_gets_more_time_than_one_that_went_away(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    """Six failures in a row, of three requests: more than retries, and all are answered."""
    server.failures = {text: [status(503), status(429)] for text in PROBLEMS}
    counts = sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert counts.info["finish_reasons"] == {"stop": 12}
    assert counts.info["retried"] == {"status 429": 3, "status 503": 3}


def test_a_server_that_is_being_started_again_is_not_waited_for_while_another_is_up() -> None:
    async def taken(failed_on: list[str], **up: bool) -> str:
        one = Fleet(dict.fromkeys(["http://a/v1", "http://b/v1"]), CONFIG, httpx.AsyncClient())
        for server in one.servers:
            server.up = up[server.url[7]]
        return (await asyncio.wait_for(one.take(failed_on), 1.0)).url

    # Elsewhere first, but not in minutes.
    failed = ["http://b/v1"]
    assert asyncio.run(taken(failed, a=True, b=True)) == "http://a/v1"
    assert asyncio.run(taken(failed, a=False, b=True)) == "http://b/v1"


def test_a_server_that_comes_up_gets_the_request_that_waits_for_it() -> None:
    async def taken() -> str:
        one = Fleet({"http://a/v1": None}, CONFIG, httpx.AsyncClient())
        (server,) = one.servers
        server.up = False

        async def come_up() -> None:
            server.up, server.url = True, "http://c/v1"
            one._changed.set()

        waiting = asyncio.create_task(one.take(["http://a/v1"]))
        await asyncio.sleep(0)
        await come_up()
        return (await asyncio.wait_for(waiting, 1.0)).url

    assert asyncio.run(taken()) == "http://c/v1"


class _Gone:
    """A supervised server that has ended for good."""

    root, api_key, given_up = "http://one", None, None

    async def lost(self, http: httpx.AsyncClient) -> bool:
        await asyncio.sleep(0.01)  # the requests wait by now
        return True

    async def restart(self, http: httpx.AsyncClient) -> None:
        raise StageError("the server was lost 1 times, restarts is 0")


def test_the_last_server_is_given_up_while_requests_rest() -> None:
    """Waiting requests are woken and cancelled at the same moment; none of them may stay."""

    async def scenario() -> None:
        async with httpx.AsyncClient() as http:
            found = Fleet({}, CONFIG, http, [_Gone()])  # type: ignore[list-item]
            found.servers[0].rests_until = asyncio.get_running_loop().time() + 60

            async def ask() -> None:
                await found.take([])

            running = asyncio.create_task(found.run(ask))
            done, _ = await asyncio.wait([running], timeout=5)
            assert done == {running}, "a request waits for ever"
            with pytest.raises(StageError, match="lost 1 times"):
                await running

    asyncio.run(scenario())
