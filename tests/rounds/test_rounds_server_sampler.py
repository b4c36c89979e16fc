from __future__ import annotations

import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from completion_server import Failure, cut_off, send, status, wait
from paths import HELPERS
from policy_server import PolicyServer, write_weights
from sample_helpers import PROBLEMS, context
from servers import all_gone, runs, serving, starts, wait_for

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference import fleet, fleet_keeper
from pcl_reasoner.inference.dialogue import Dialogue, Problem, Prompt
from pcl_reasoner.inference.response_log import ResponseLog
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.rounds.server_sampler import ServerSampler

SETTINGS = SamplingConfig(
    n=4, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=40, max_model_len=200, concurrency=2
)
REPLACED = ["/pause", "/collective_rpc", "/reset_prefix_cache", "/resume"]
LABELLED = [*REPLACED, "/update_weight_version"]
CONFIRMED = "/v1/completions"
Weights = Callable[[int], Path]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(fleet_keeper, "RETRY_SECONDS", 0.01)


@pytest.fixture
def server(policy: Path) -> Iterator[PolicyServer]:
    """A server of somebody else, with the first policy."""
    one = PolicyServer(policy)
    yield one
    one.stop()


@pytest.fixture
def second(policy: Path) -> Iterator[PolicyServer]:
    one = PolicyServer(policy)
    yield one
    one.stop()


class Drawing:
    """A sampler, and rounds that are drawn with it.

    ``round(folder)`` draws all prompts by a folder's weights, and returns their records.
    """

    def __init__(self, policy: Path, folder: Path, settings: SamplingConfig, **placement: Any):
        self.dialogue, self.folder, self.settings = Dialogue(policy, settings), folder, settings
        self.context = context(folder, **placement)
        self.sampler = ServerSampler(self.dialogue, self.context, folder / "logs" / "server.log")
        self.retried: Counter[str] = Counter()
        self.rounds = 0

    def prompts(self, count: int = 3) -> list[Prompt]:
        texts = [*PROBLEMS, *(f"{i} + 1?" for i in range(count - 3))]
        return [self.dialogue.prompt(Problem(f"p{i}", text)) for i, text in enumerate(texts)]

    def round(
        self, weights: Path | None, count: int = 3, log_probs: bool = True, **changes: Any
    ) -> list[dict[str, Any]]:
        if weights is not None:
            self.sampler.load(weights)
        self.rounds += 1
        records = ResponseLog(self.folder / f"{self.rounds}.jsonl")
        settings = self.settings.model_copy(update=changes)
        try:
            self.sampler.draw(self.prompts(count), settings, records, log_probs)
        finally:
            records.close()
        self.retried = records.retried
        return list(records.read(records.keys()))


@pytest.fixture
def drawing(policy: Path, tmp_path: Path) -> Iterator[Callable[..., Drawing]]:
    opened: list[Drawing] = []

    def make(*servers: PolicyServer, changes: dict[str, Any] | None = None, **placement: Any):
        urls = {"server_urls": [one.url for one in servers]} if servers else {}
        settings = SETTINGS.model_copy(update=changes or {})
        opened.append(Drawing(policy, tmp_path / "out", settings, **urls, **placement))
        opened[-1].sampler.__enter__()
        return opened[-1]

    yield make
    for one in opened:
        one.sampler.__exit__(None, None, None)


def numbers(records: list[dict[str, Any]]) -> set[int]:
    """The weights by which responses were drawn."""
    return {record["token_ids"][0] - 10 for record in records}


def test_a_server_gets_every_rounds_weights_in_order_and_is_confirmed_before_it_is_asked(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights
) -> None:
    one = drawing(server)
    for number in (2, 3):
        server.calls.clear()
        records = one.round(weights(number))
        assert numbers(records) == {number}
        assert [len(records), server.folder] == [12, weights(number)]
        facts = ["/weight_info", *LABELLED, CONFIRMED]
        answers = ["/v1/chat/completions", "/weight_info"] * 3
        # The label is read before and after; the last two answers overlap.
        assert server.calls[: len(facts)] == facts
        assert sorted(server.calls[len(facts) :]) == sorted(answers)
        assert one.sampler.hand_over_seconds > 0
    # Another draw by the same weights: the label shows that they are there.
    server.calls.clear()
    other = one.round(None, n=2, seed=50)
    assert server.calls[:2] == ["/weight_info", CONFIRMED]
    assert not {*REPLACED} & {*server.calls}
    assert [record["seed"] for record in other] == [50, 51, 52, 53, 54, 55]
    assert server.asked_while_paused == 0
    assert len(server.label) == 16


def test_what_is_drawn_already_asks_nobody(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights, tmp_path: Path
) -> None:
    one = drawing(server)
    one.round(weights(2))
    one.rounds = 0
    server.calls.clear()
    assert len(one.round(weights(3))) == 12
    assert server.calls == []
    # A response that is missing is drawn with its own seed, by the current weights.
    log = tmp_path / "out" / "1.jsonl"
    lines = [line for line in log.read_text().splitlines() if '"sample_index": 2' not in line]
    log.write_text("\n".join(lines) + "\n")
    one.rounds = 0
    records = one.round(weights(3))
    assert {record["token_ids"][0] - 10: record["seed"] % 4 for record in records}[3] == 2
    assert [record["seed"] for record in records] == list(range(12))


def test_records_have_a_log_prob_for_each_token(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights
) -> None:
    one = drawing(server)
    record = one.round(weights(3))[0]
    assert record["token_ids"] == [13] * 8 + [2]
    assert record["sampled_log_probs"] == [-0.03] * 9
    assert "sampled_log_probs" not in one.round(weights(3), log_probs=False)[0]
    assert [body.get("logprobs") for body in server.asked] == [True] * 3 + [None] * 3


def test_a_failed_request_is_recorded_without_log_probs(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights
) -> None:
    server.failures = {PROBLEMS[1]: [status(400)]}
    drawn = drawing(server, changes={"max_failed": 0.5}).round(weights(2))
    failed = [one for one in drawn if one["finish_reason"] == "error"]
    assert [(one["failure"], one["sampled_log_probs"]) for one in failed] == [
        ("status 400", [])
    ] * 4


CONTENT = [{"logprob": -0.5}] * 9


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"logprobs": None}, "sends no log-probs of the sampled tokens.*vLLM 0.32"),
        ({"logprobs": {"content": CONTENT[:8]}}, "sends 8 log-probs for a response of 9 tokens"),
        ({"logprobs": {"content": [*CONTENT[:8], {"logprob": -9999.0}]}}, "token 8.*is -9999.0"),
        ({"logprobs": {"content": [{"logprob": 3.5}, *CONTENT[:8]]}}, "token 0.*--logprobs-mode"),
        ({"token_ids": None}, "sends no token_ids"),
        # Ended by a token that is not the model's: an end token is appended that nobody sampled.
        (
            {"token_ids": [5] * 9, "logprobs": {"content": CONTENT}},
            "9 log-probs for a response of 10 tokens, its end token included .finish_reason stop",
        ),
    ],
)
def test_other_log_probs_are_errors(
    drawing: Callable[..., Drawing],
    server: PolicyServer,
    weights: Weights,
    answers: dict[str, Any],
    message: str,
) -> None:
    server.answers = answers
    with pytest.raises(StageError, match=message):
        drawing(server).round(weights(2))


def test_a_response_that_was_cut_off_by_length_needs_no_end_token(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights
) -> None:
    server.answers = {"token_ids": [5] * 9, "finish_reason": "length"}
    record = drawing(server).round(weights(2))[0]
    assert (record["token_ids"], len(record["sampled_log_probs"])) == ([5] * 9, 9)


def results(value: Any) -> Failure:
    """Answer with status 200 and a JSON value."""

    def answer(handler: Any, body: dict[str, Any]) -> bool:
        send(handler, 200, value)
        return True

    return answer


def prompt_log_probs(value: float) -> Failure:
    """Answer with the same log-prob of all of a prompt's tokens."""

    def answer(handler: Any, body: dict[str, Any]) -> bool:
        entries = [None, *({str(token): {"logprob": value}} for token in body["prompt"][1:])]
        send(handler, 200, {"choices": [{"prompt_logprobs": entries}]})
        return True

    return answer


AGAIN = [page for page in LABELLED if page != "/collective_rpc"]
"""Pages whose failure leaves the weights complete."""


@pytest.mark.parametrize("page", [*AGAIN, CONFIRMED, "/weight_info"])
def test_a_passing_failure_is_tried_again_from_the_beginning(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights, page: str
) -> None:
    server.faults = {page: [status(503), cut_off]}
    assert numbers(drawing(server).round(weights(2))) == {2}
    assert server.calls.count(page) >= 3
    assert server.asked_while_paused == 0


@pytest.mark.parametrize(
    ("page", "fault", "message"),
    [
        ("/pause", status(404), "has no page /pause.*VLLM_SERVER_DEV_MODE=1.*pclr_guard.Guard"),
        ("/collective_rpc", status(404), "has no page /collective_rpc"),
        ("/pause", status(401), "needs another key: name the environment variable"),
        ("/pause", status(503), "cannot be given.*/pause: status 503.*after 1 retries"),
        ("/reset_prefix_cache", results({"success": False}), "prefix cache is in use, after 1"),
        ("/collective_rpc", status(500), "could not load the weights in .*/00002/weights: .*500"),
        ("/collective_rpc", results({"results": [None, "no"]}), "null for each worker.*paused"),
        ("/collective_rpc", results({"results": []}), "expected null for each worker"),
        ("/v1/completions", status(400), "refuses to compute log-probs"),
        ("/v1/completions", prompt_log_probs(float("nan")), "no log-prob, after 1 retries"),
        # What the server gave under the first policy.
        ("/v1/completions", prompt_log_probs(-1.0), "with the previous weights.*--enforce-eager"),
    ],
)
def test_a_server_that_cannot_take_the_weights_is_not_asked(
    drawing: Callable[..., Drawing],
    server: PolicyServer,
    weights: Weights,
    page: str,
    fault: Failure,
    message: str,
) -> None:
    one = drawing(server, changes={"retries": 1})
    one.round(weights(1))
    server.asked.clear()
    server.faults = {page: [fault] * 9}
    with pytest.raises(StageError, match=message):
        one.round(weights(2))
    assert server.asked == []


def test_weights_that_are_the_same_give_the_same_log_probs(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights, tmp_path: Path
) -> None:
    """A round without any advantage changes nothing."""
    one = drawing(server)
    one.round(weights(1))
    same = shutil.copytree(weights(1), tmp_path / "same")
    server.calls.clear()
    assert numbers(one.round(same)) == {1}
    assert "/collective_rpc" in server.calls


def test_servers_that_compute_with_different_weights_are_refused(
    drawing: Callable[..., Drawing], server: PolicyServer, second: PolicyServer, weights: Weights
) -> None:
    one = drawing(server, second)
    second.faults = {CONFIRMED: [prompt_log_probs(-2.04)]}
    assert numbers(one.round(weights(2))) == {2}
    second.faults = {CONFIRMED: [prompt_log_probs(-3.06)]}
    server.asked.clear()
    second.asked.clear()
    with pytest.raises(StageError, match="compute with different weights.* 0.06 nats per token"):
        one.round(weights(3))
    assert server.asked == second.asked == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda w: w.pop("model.layers.1.self_attn.v_proj.bias"), "v_proj.bias has the shape none"),
        (lambda w: w.update(extra=w["lm_head.weight"]), "extra .*expected none: there is no such"),
        (
            lambda w: w.update({"lm_head.weight": w["lm_head.weight"][:-1].copy()}),
            r"lm_head.weight has the shape \(303, 64\), expected \(304, 64\)",
        ),
    ],
)
def test_weights_of_another_model_reach_no_server(
    drawing: Callable[..., Drawing],
    server: PolicyServer,
    weights: Weights,
    spoil: Callable[[dict[str, Any]], Any],
    message: str,
) -> None:
    from safetensors.numpy import load_file, save_file

    path = weights(2) / "model.safetensors"
    values = load_file(path)
    spoil(values)
    save_file(values, path, metadata={"format": "pt"})
    with pytest.raises(StageError, match=message):
        drawing(server).round(weights(2))
    assert server.calls == []


def test_a_folder_that_is_incomplete_reaches_no_server(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights
) -> None:
    one = drawing(server)
    (weights(2) / "tokenizer.json").unlink()
    with pytest.raises(StageError, match="missing tokenizer.json"):
        one.round(weights(2))
    with (weights(3) / "model.safetensors").open("r+b") as handle:
        handle.truncate(5000)
    with pytest.raises(StageError, match="model.safetensors"):
        one.round(weights(3))
    assert server.calls == []


def test_a_server_that_comes_back_with_other_weights_gets_them_before_it_is_asked_again(
    drawing: Callable[..., Drawing],
    server: PolicyServer,
    second: PolicyServer,
    weights: Weights,
    policy: Path,
) -> None:
    one = drawing(server, second, changes={"retries": 9})

    def restart(handler: Any, body: dict[str, Any]) -> bool:
        server.restart(policy)
        return cut_off(handler, body)

    texts = [prompt.messages[-1]["content"] for prompt in one.prompts(24)]
    server.failures = {text: [wait(0.02)] for text in texts}
    second.failures = {text: [wait(0.02)] for text in texts}
    server.failures.update({text: [restart] for text in texts[8:12]})
    records = one.round(weights(2), 24)
    assert len(records) == 96
    assert numbers(records) == {2}
    assert server.calls.count("/collective_rpc") == 1 + one.retried["connection"]
    # It was asked again after that.
    assert server.calls[::-1].index("/v1/chat/completions") < server.calls[::-1].index("/resume")


def test_a_server_that_was_restarted_between_two_requests_is_noticed(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights, policy: Path
) -> None:
    """No connection fails: only the label says it. The answer is not used."""
    one = drawing(server, changes={"concurrency": 1})

    def restarted(handler: Any, body: dict[str, Any]) -> bool:
        server.restart(policy)
        return False  # and answer by the first policy

    server.failures = {PROBLEMS[1]: [restarted]}
    records = one.round(weights(2))
    assert numbers(records) == {2}
    assert one.retried == {"other weights": 1}
    assert server.calls.count("/collective_rpc") == 2
    assert len(server.asked) == 4


def test_a_server_between_two_rounds(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights, policy: Path
) -> None:
    one = drawing(server)
    one.round(weights(2))
    server.restart(policy)
    assert numbers(one.round(None)) == {2}
    assert server.calls.count("/collective_rpc") == 2


def test_two_runs_on_one_server_are_told(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights
) -> None:
    one = drawing(server, changes={"retries": 2})

    def taken(handler: Any, body: dict[str, Any]) -> bool:
        server.label = "of another run"
        return False

    server.failures = {text: [taken] * 9 for text in PROBLEMS}
    with pytest.raises(StageError, match="somebody else replaced its weights, after 2 retries"):
        one.round(weights(2))


def test_a_server_without_labels_gets_the_weights_in_every_draw(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights
) -> None:
    server.labels = False
    one = drawing(server)
    one.round(weights(2))
    assert numbers(one.round(None, seed=7)) == {2}
    assert server.calls.count("/collective_rpc") == 2
    assert any("has no /update_weight_version" in warning for warning in one.context.warnings)


def test_a_response_that_a_server_gives_up_is_asked_for_again(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights
) -> None:
    def aborted(handler: Any, body: dict[str, Any]) -> bool:
        answer = server.completion(body)
        answer["choices"][2]["finish_reason"] = "abort"
        send(handler, 200, answer)
        return True

    server.failures = {PROBLEMS[0]: [aborted]}
    one = drawing(server)
    assert {record["finish_reason"] for record in one.round(weights(2))} == {"stop"}
    assert one.retried == {"aborted": 1}


def own(folder: Path, slow: float = 0.0, **keys: Any) -> dict[str, Any]:
    """A placement that starts stand-ins."""
    environment = {"PYTHONPATH": str(HELPERS)}
    return serving(folder, slow=slow, program="policy_server.py", environment=environment, **keys)


def test_own_servers_start_with_the_first_weights_and_keep_running(
    drawing: Callable[..., Drawing], weights: Weights, tmp_path: Path
) -> None:
    one = drawing(**own(tmp_path, servers=2))
    assert starts(tmp_path) == []
    assert numbers(one.round(weights(4))) == {4}
    for number in (5, 6):
        assert numbers(one.round(weights(number))) == {number}
    assert len(starts(tmp_path)) == 2
    words = "".join(path.read_text() for path in (tmp_path / "out/logs").glob("*.log"))
    assert words.count(f'"serve", "{weights(4)}"') == 2
    assert words.count('"--middleware", "pclr_guard.Guard"') == 2
    one.sampler.__exit__(None, None, None)
    wait_for(lambda: all_gone(tmp_path))


def test_own_servers_answer_nobody_without_the_key(
    drawing: Callable[..., Drawing], weights: Weights, tmp_path: Path
) -> None:
    one = drawing(**own(tmp_path))
    one.round(weights(2))
    (server,) = one.sampler._servers or []
    pages = [*REPLACED, "/v1/models"]
    assert [httpx.post(f"{server.root}{page}").status_code for page in pages] == [401] * 5
    placement = own(tmp_path)
    placement["sampling"]["environment"]["VLLM_API_KEY"] = ""
    with pytest.raises(StageError, match="VLLM_API_KEY is empty"):
        drawing(**placement).sampler.load(weights(2))


def test_a_server_that_is_killed_in_a_round_starts_again_with_the_rounds_weights(
    drawing: Callable[..., Drawing], weights: Weights, tmp_path: Path
) -> None:
    one = drawing(**own(tmp_path, slow=0.2, servers=2))
    one.round(weights(2))
    before = starts(tmp_path)
    log = tmp_path / "out" / "2.jsonl"

    def kill() -> None:
        wait_for(lambda: log.exists() and log.read_text().count("problem_id") >= 8)
        os.kill(before[0][0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    records = one.round(weights(3), 24)
    killer.join()
    assert len(records) == 96
    assert numbers(records) == {3}
    assert len(starts(tmp_path)) == 3
    # It started with them: its process was given the folder, and nobody replaced anything.
    assert numbers(one.round(weights(4))) == {4}
    words = "".join(path.read_text() for path in (tmp_path / "out/logs").glob("*.log"))
    assert [words.count(f'"serve", "{weights(number)}"') for number in (2, 3)] == [2, 1]


@pytest.mark.parametrize("is_own", [False, True])
def test_weights_that_were_written_again_under_the_same_path_are_given_again(
    drawing: Callable[..., Drawing],
    server: PolicyServer,
    policy: Path,
    tmp_path: Path,
    is_own: bool,
) -> None:
    """A trainer that is set back to a checkpoint makes some rounds' weights again."""
    one = drawing(**own(tmp_path)) if is_own else drawing(server)
    for number in (2, 3):
        shutil.rmtree(tmp_path / "weights", ignore_errors=True)
        write_weights(tmp_path / "weights", policy, number)
        assert numbers(one.round(tmp_path / "weights")) == {number}
    assert len(starts(tmp_path)) == is_own


def test_a_server_that_starts_again_with_other_weights_than_the_rounds_is_refused(
    drawing: Callable[..., Drawing], weights: Weights, policy: Path, tmp_path: Path
) -> None:
    one = drawing(**own(tmp_path, slow=0.2, servers=2))
    one.round(weights(2))
    log = tmp_path / "out" / "2.jsonl"

    def kill() -> None:
        wait_for(lambda: log.exists() and log.read_text().count("problem_id") >= 8)
        shutil.rmtree(weights_of_three)
        write_weights(weights_of_three, policy, 5)
        os.kill(starts(tmp_path)[0][0], signal.SIGKILL)

    weights_of_three = weights(3)
    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(StageError, match="compute with different weights.* 2 nats per token"):
        one.round(weights_of_three, 200)
    killer.join()


def test_a_server_that_was_killed_between_rounds_starts_again_with_the_next_weights(
    drawing: Callable[..., Drawing], weights: Weights, tmp_path: Path
) -> None:
    one = drawing(**own(tmp_path, servers=2))
    one.round(weights(2))
    for process in starts(tmp_path)[0]:
        os.kill(process, signal.SIGKILL)
    wait_for(lambda: not runs(starts(tmp_path)[0][0]))
    assert numbers(one.round(weights(3))) == {3}
    words = "".join(path.read_text() for path in (tmp_path / "out/logs").glob("*.log"))
    assert words.count(f'"serve", "{weights(3)}"') == 1


def test_an_own_server_that_fails_to_load_weights_is_started_again_with_them(
    drawing: Callable[..., Drawing], weights: Weights, tmp_path: Path
) -> None:
    """As vLLM 0.32: it answers 500 and ends."""
    placement = own(tmp_path)
    placement["sampling"]["environment"]["POLICY_SERVER_FAILS"] = "00003"
    one = drawing(**placement)
    one.round(weights(2))
    assert numbers(one.round(weights(3))) == {3}
    assert numbers(one.round(weights(4))) == {4}
    assert len(starts(tmp_path)) == 2
    one.sampler.__exit__(None, None, None)
    assert any("restarted 1 times" in warning for warning in one.context.warnings)


def test_an_own_server_whose_engine_ends_while_it_loads_weights_is_started_again(
    drawing: Callable[..., Drawing],
    weights: Weights,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As vLLM 0.32: the request is never answered, and the front process does not end."""
    monkeypatch.setattr("pcl_reasoner.inference.server.HEALTH_SECONDS", 0.05)
    placement = own(tmp_path)
    placement["sampling"]["environment"]["POLICY_SERVER_HANGS"] = "00003"
    one = drawing(**placement)
    one.round(weights(2))
    assert numbers(one.round(weights(3))) == {3}
    assert len(starts(tmp_path)) == 2


def test_a_server_that_can_no_longer_be_started_ends_the_stage_only_if_it_is_the_last(
    drawing: Callable[..., Drawing], weights: Weights, tmp_path: Path
) -> None:
    one = drawing(**own(tmp_path, servers=2, restarts=0))
    one.round(weights(2))
    first, last = starts(tmp_path)
    os.kill(first[0], signal.SIGKILL)
    wait_for(lambda: not runs(first[0]))
    assert numbers(one.round(weights(3))) == {3}
    assert numbers(one.round(weights(4))) == {4}
    os.kill(last[0], signal.SIGKILL)
    wait_for(lambda: not runs(last[0]))
    with pytest.raises(StageError, match="lost 1 times, restarts is 0"):
        one.round(weights(5))


def test_settings_may_change_but_not_the_prompt(
    drawing: Callable[..., Drawing], server: PolicyServer, weights: Weights
) -> None:
    one = drawing(server)
    one.round(weights(2), n=1, max_new_tokens=17, temperature=0.5)
    assert {(b["n"], b["max_tokens"], b["temperature"]) for b in server.asked} == {(1, 17, 0.5)}
    with pytest.raises(ValueError, match="the prompts would differ"):
        one.round(None, system="Be brief.", seed=3)


def test_no_server_says_how_to_start_one(drawing: Callable[..., Drawing]) -> None:
    with pytest.raises(StageError, match="names no server"):
        drawing()
