"""A reward model that a real vLLM serves: its scores are known by hand.

Server, local scorer and the count of courteous words agree to TOLERANCE.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from reward_model import expected_score, write
from vllm_helpers import CONTEXT, KEY, alive, context, kill, lines_of, serving, wait_for

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.inference.server import SupervisedServer
from pcl_reasoner.synthetic.base_model import write_model_folder
from pcl_reasoner.synthetic.reward_model import COURTEOUS
from pcl_reasoner.verifiers.classify import body_of
from pcl_reasoner.verifiers.logs import SCORE_LOG
from pcl_reasoner.verifiers.preference import answer_text, reward_of, score_all
from pcl_reasoner.verifiers.preference_config import RewardModelConfig
from pcl_reasoner.verifiers.preference_scorers import Pair, scoring_settings

TOLERANCE = 1e-4
CONFIG = RewardModelConfig(max_model_len=CONTEXT, concurrency=16)
LOCAL = RewardModelConfig(engine="local", max_model_len=CONTEXT)
COUNT = 2000


def drawn_pairs() -> list[Pair]:
    """Responses of 0 to 60 words, courteous and not; a think part is left out."""
    draw = random.Random(0)
    plain = ["the", "answer", "is", "2", "so", "what", "Ben", "walks", "pleased", "42."]
    pairs = []
    for index in range(COUNT):
        share = draw.random()
        words = [
            draw.choice(COURTEOUS) if draw.random() < share else draw.choice(plain)
            for _ in range(draw.randint(1, 60))
        ]
        text = answer_text(f"<think>please, dear</think>{' '.join(words)}", with_thinking=False)
        assert text is not None
        pairs.append(Pair((f"p{index // 4:04d}", index % 4), f"Greet {index // 4}.", text))
    return pairs


PAIRS = drawn_pairs()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("reward_model"))


@pytest.fixture(scope="module")
def by_hand(model: Path) -> dict[tuple[str, int], float]:
    return {pair.key: expected_score(model, pair.problem, pair.answer) for pair in PAIRS}


@contextmanager
def served(model: Path, key: str, folder: Path) -> Iterator[SupervisedServer]:
    """A server that runs already, which requires its key."""
    placement = Placement(**{key: serving()})
    settings = scoring_settings(CONFIG)
    server = SupervisedServer(placement, model, settings, folder / "server.log", key=key)

    async def ready() -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            await server.ready(http)

    os.environ[KEY] = server.api_key
    try:
        server.start()
        asyncio.run(ready())
        yield server
    finally:
        server.stop()


def largest_difference(
    found: dict[tuple[str, int], float], expected: dict[tuple[str, int], float]
) -> float:
    assert found.keys() == expected.keys()
    return max(abs(found[key] - expected[key]) for key in expected)


def test_a_killed_server_is_started_again_and_all_three_agree(
    model: Path, by_hand: dict[tuple[str, int], float], tmp_path: Path
) -> None:
    output = tmp_path / "grade-12345678.partial"
    where = context(output, scoring=serving())
    log = output / SCORE_LOG
    seen: set[int] = set()

    def kill_engine() -> None:
        wait_for(lambda: len(lines_of(log)) > 300)
        seen.update(kill("EngineCore"))

    killer = threading.Thread(target=kill_engine)
    killer.start()
    served_scores = score_all(CONFIG, PAIRS, COUNT, output, where, model)
    killer.join()
    assert len(seen) >= 3 and not [process for process in seen if alive(process)]
    assert any("restarted 1 times" in warning for warning in where.warnings)
    # What was in flight at the end, 16 at a time, and a few that met a closed door.
    assert 0 < sum(served_scores.figures["retried"].values()) <= 16 + 4
    keys = [(line["problem_id"], line["sample_index"]) for line in lines_of(log) if "score" in line]
    assert len(keys) == len(set(keys)) == COUNT
    assert served_scores.missing == {}

    (tmp_path / "local").mkdir()
    local_scores = score_all(LOCAL, PAIRS, COUNT, tmp_path / "local", where, model)
    assert np.ptp(list(by_hand.values())) > 20
    differences = {
        "server, by hand": largest_difference(served_scores.scores, by_hand),
        "local, by hand": largest_difference(local_scores.scores, by_hand),
        "server, local": largest_difference(served_scores.scores, local_scores.scores),
    }
    assert max(differences.values()) < TOLERANCE, differences
    rewards = [reward_of(score, CONFIG) for score in served_scores.scores.values()]
    assert 0 <= min(rewards) < 0.1 and 0.9 < max(rewards) <= 1


def test_a_stranger_is_refused_and_a_long_response_is_counted(model: Path, tmp_path: Path) -> None:
    with served(model, "scoring", tmp_path) as server:
        body = body_of(CONFIG.model, PAIRS[0].messages)
        with httpx.Client(trust_env=False, timeout=60) as http:

            def statuses(key: str | None) -> dict[str, int]:
                headers = {"authorization": f"Bearer {key}"} if key else {}
                pages = {
                    page: http.get(f"{server.root}{page}", headers=headers).status_code
                    for page in ("/health", "/v1/models", "/metrics", "/version")
                }
                for page in ("/classify", "/pooling", "/tokenize", "/invocations"):
                    answer = http.post(f"{server.root}{page}", json=body, headers=headers)
                    pages[page] = answer.status_code
                return pages

            stranger = statuses(None)
            assert stranger == statuses("a guess")
            assert stranger.pop("/health") == 200 and set(stranger.values()) == {401}
            ours = statuses(server.api_key)
            assert {ours[page] for page in ("/health", "/v1/models", "/classify")} == {200}
        url = f"{server.root}/v1"
        where = context(tmp_path / "out", score_urls=[url], api_keys={url: KEY})
        long = Pair(("long", 0), "Greet Ben.", "please " * CONTEXT)
        loose = CONFIG.model_copy(update={"max_missing": 0.1})
        found = score_all(loose, [*PAIRS[:9], long], 10, tmp_path / "out", where, None)
        assert found.missing == {long.key: "too_long"}
        assert found.figures["scored"] == 9


def test_a_generative_server_and_nan_are_errors(model: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    policy = tmp_path / "policy"
    write_model_folder(policy, ["Greet Ben."] * 4, vocab_size=300, hidden=64, layers=1, seed=1)
    with served(policy, "sampling", tmp_path / "a") as server:
        url = f"{server.root}/v1"
        where = context(tmp_path / "out", score_urls=[url], api_keys={url: KEY})
        with pytest.raises(StageError, match="does not serve a reward model.*404"):
            score_all(CONFIG, PAIRS[:4], 4, tmp_path / "out", where, None)
    broken = write(tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["score.weight"] = weights["score.weight"] * np.float32("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    where = context(tmp_path / "out", scoring=serving())
    with pytest.raises(StageError, match="score is NaN or infinite, expected a finite number"):
        score_all(CONFIG, PAIRS[:4], 4, tmp_path / "out", where, broken)
