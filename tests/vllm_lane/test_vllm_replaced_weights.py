"""Real vLLM servers whose weights are replaced while they run, and one that is killed."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from train_helpers import VOCABULARY, write_policy
from vllm_helpers import CONTEXT, alive, context, kill, lines_of, processes_of, serving, wait_for

from pcl_reasoner.inference.dialogue import Dialogue, Problem, Prompt
from pcl_reasoner.inference.requests import prompt_body
from pcl_reasoner.inference.response_log import ResponseLog
from pcl_reasoner.inference.server import SupervisedServer
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.rounds.server_sampler import ServerSampler

SETTINGS = SamplingConfig(
    n=8,
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    max_new_tokens=64,
    max_model_len=CONTEXT,
    concurrency=16,
)
Drawn = dict[tuple[str, int], dict[str, Any]]
PAGES = ["/pause", "/resume", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version"]


class Rounds:
    """Two servers for all tests of this file, and two policies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first = write_policy(folder / "first", layers=2)
        self.second = shutil.copytree(self.first, folder / "second")
        random = np.random.default_rng(0)
        weights = load_file(self.first / "model.safetensors")
        noised = {
            name: (value + random.normal(0, 0.05, value.shape)).astype(np.float32)
            for name, value in weights.items()
        }
        save_file(noised, self.second / "model.safetensors", metadata={"format": "pt"})
        self.dialogue = Dialogue(self.first, SETTINGS)
        made = context(folder / "out", sampling={**serving(), "servers": 2})
        self.sampler = ServerSampler(self.dialogue, made, folder / "out" / "server.log")
        self.draws = 0

    def prompts(self, count: int = 24) -> list[Prompt]:
        problems = [Problem(f"p{i:02d}", f"{i} user {i % 7} = {i % 3} ?") for i in range(count)]
        return [self.dialogue.prompt(problem) for problem in problems]

    @property
    def log(self) -> Path:
        """Of the draw that runs, or that runs next."""
        return self.folder / f"{self.draws}.jsonl"

    def draw(self, policy: Path | None, **changes: Any) -> Drawn:
        if policy is not None:
            self.sampler.load(policy)
        records = ResponseLog(self.log)
        settings = SETTINGS.model_copy(update=changes)
        self.sampler.draw(self.prompts(), settings, records, log_probs=True)
        self.draws += 1
        records.close()
        found = {
            (one["problem_id"], one["sample_index"]): one for one in records.read(records.keys())
        }
        assert len(found) == 24 * settings.n
        return found

    @property
    def servers(self) -> list[SupervisedServer]:
        return self.sampler._servers or []


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    before = set(processes_of(os.getpid()))
    made = Rounds(tmp_path_factory.mktemp("rounds"))
    with made.sampler:
        yield made
    assert set(processes_of(os.getpid())) <= before


def tokens(drawn: Drawn) -> dict[tuple[str, int], list[int]]:
    return {key: one["token_ids"] for key, one in drawn.items()}


def largest(one: Drawn, other: Drawn) -> float:
    """The largest difference of a token's log-prob."""
    return max(
        float(
            np.abs(
                np.subtract(one[key]["sampled_log_probs"], other[key]["sampled_log_probs"])
            ).max()
        )
        for key in one
    )


def local_log_probs(policy: Path, prompt: list[int], response: list[int]) -> list[float]:
    """By transformers, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(policy, torch_dtype=torch.float32).eval()
    with torch.no_grad():
        scores = model(torch.tensor([[*prompt, *response]])).logits[0].log_softmax(-1)
    return [float(scores[len(prompt) + i - 1, token]) for i, token in enumerate(response)]


def test_there_and_back_the_responses_are_the_same_and_their_log_probs_are_the_models(
    rounds: Rounds,
) -> None:
    first, greedy = rounds.draw(rounds.first), rounds.draw(None, n=1, temperature=0.0)
    second = rounds.draw(rounds.second)
    back, greedy_back = rounds.draw(rounds.first), rounds.draw(None, n=1, temperature=0.0)
    assert tokens(back) == tokens(first)
    assert tokens(greedy_back) == tokens(greedy)
    assert max(largest(back, first), largest(greedy_back, greedy)) < 1e-5
    assert sum(one != tokens(second)[key] for key, one in tokens(first).items()) > 150
    reasons = {one["finish_reason"] for one in first.values()}
    assert reasons == {"stop", "length"}
    prompts = {prompt.problem_id: prompt.ids for prompt in rounds.prompts()}
    for policy, drawn in ((rounds.first, first), (rounds.second, second)):
        for key in list(drawn)[::24]:
            one = drawn[key]
            expected = local_log_probs(policy, prompts[key[0]], one["token_ids"])
            assert one["sampled_log_probs"] == pytest.approx(expected, abs=1e-4)


def test_no_page_answers_without_the_key(rounds: Rounds) -> None:
    (server, _) = rounds.servers
    with httpx.Client(trust_env=False) as http:
        for headers in ({}, {"authorization": "Bearer a guess"}):
            found = [http.post(f"{server.root}{page}", headers=headers) for page in PAGES]
            names = ("/v1/models", "/weight_info", "/metrics", "/is_paused")
            found += [http.get(f"{server.root}{page}", headers=headers) for page in names]
            assert [answer.status_code for answer in found] == [401] * 9
        assert http.get(f"{server.root}/health").status_code == 200
    words = "".join(Path(f"/proc/{n}/cmdline").read_text() for n in processes_of(os.getpid()))
    assert server.api_key not in words


def test_a_server_that_is_killed_starts_with_the_rounds_weights_which_equals_a_replacement(
    rounds: Rounds,
) -> None:
    seen: set[int] = set()
    victims: list[str] = []
    log = rounds.log

    def kill_one() -> None:
        wait_for(lambda: sum("token_ids" in line for line in lines_of(log)) > 60)
        victims.append(rounds.servers[1].root)
        seen.update(kill("EngineCore", f"{victims[0]}/v1"))

    killer = threading.Thread(target=kill_one)
    killer.start()
    killed = rounds.draw(rounds.second)
    killer.join()
    # The draw may have ended before the server was up again: the next one waits for it.
    again = rounds.draw(None)
    assert tokens(killed) == tokens(again)
    assert largest(killed, again) < 1e-5
    replaced, fresh = rounds.servers
    assert [fresh.restarts, fresh.holds, fresh.root != victims[0]] == [1, rounds.second, True]
    assert [replaced.restarts, replaced.holds] == [0, rounds.second]
    assert len([process for process in seen if not alive(process)]) >= 3
    assert answers_of(replaced, rounds) == answers_of(fresh, rounds)


def answers_of(server: SupervisedServer, rounds: Rounds) -> list[Any]:
    """Tokens and log-probs of greedy and of seeded responses, and log-probs of prompts."""
    found = []
    headers = {"authorization": f"Bearer {server.api_key}"}
    with httpx.Client(trust_env=False, timeout=60, headers=headers) as http:
        for prompt in rounds.prompts(6):
            for temperature in (0.0, 1.0):
                body = {
                    "model": "policy",
                    "messages": prompt.messages,
                    "max_tokens": 48,
                    "temperature": temperature,
                    "seed": 11,
                    "logprobs": True,
                    "return_token_ids": True,
                }
                answer = http.post(f"{server.root}/v1/chat/completions", json=body).json()
                (choice,) = answer["choices"]
                entries = choice["logprobs"]["content"]
                found.append((choice["token_ids"], [entry["logprob"] for entry in entries]))
            ids = [*prompt.ids, *range(3, VOCABULARY, 5)]
            answer = http.post(f"{server.root}/v1/completions", json=prompt_body(ids, SETTINGS))
            found.append(answer.json()["choices"][0]["prompt_logprobs"])
    return found
