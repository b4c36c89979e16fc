"""Scores of a reward model, against real HTTP servers and by the local scorer."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from completion_server import VLLM_ERRORS, drop, send, status, wait
from reward_model import ScoreServer, expected_score, not_json, scoring, too_long, write
from servers import all_gone, starts, wait_for

from pcl_reasoner.core.artifact import fingerprint, hash_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import GUARD_FOLDER
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference import fleet
from pcl_reasoner.inference.addresses import addresses
from pcl_reasoner.verifiers import preference_scorers
from pcl_reasoner.verifiers.logs import SCORE_LOG
from pcl_reasoner.verifiers.preference import (
    Scores,
    answer_text,
    reward_of,
    score_all,
)
from pcl_reasoner.verifiers.preference_config import RewardModelConfig
from pcl_reasoner.verifiers.preference_scorers import Pair, ScoreLog, Tally, opened

CONFIG = RewardModelConfig(max_model_len=512, concurrency=2)
LOCAL = RewardModelConfig(engine="local")
LOOSE = CONFIG.model_copy(update={"max_missing": 1.0})
PAIRS = [Pair((f"p{i:02d}", i % 3), f"Greet {i}.", f"score {i / 4 - 1}") for i in range(12)]
SCORES = {pair.key: i / 4 - 1 for i, pair in enumerate(PAIRS)}


@pytest.fixture
def server() -> Iterator[ScoreServer]:
    one = ScoreServer()
    yield one
    one.stop()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "FIRST_PAUSE", 0.05)


def score(
    path: Path,
    config: RewardModelConfig = CONFIG,
    pairs: list[Pair] = PAIRS,
    model: Path | None = None,
    **placement: Any,
) -> Scores:
    output = path / "grade-12345678.partial"
    output.mkdir(exist_ok=True)
    where = StageContext("grade", path / "refused.jsonl", placement=Placement(**placement))
    return score_all(config, pairs, len(pairs), output, where, model)


def log_of(path: Path) -> Path:
    return path / "grade-12345678.partial" / SCORE_LOG


def test_the_model_reads_what_follows_the_thoughts() -> None:
    response = "<think>short\nor long</think>\n\nHello Ben!\n"
    assert answer_text(response, with_thinking=False) == "Hello Ben!"
    assert answer_text(response, with_thinking=True) == response
    tagged = "<think>x</think><answer>Hello <b>Ben</b>!</answer>"
    assert answer_text(tagged, with_thinking=False) == "Hello <b>Ben</b>!"
    for unfinished in ("<think>Hello", "Hello", "<think>a</think> \n", "</think><think>b"):
        assert answer_text(unfinished, with_thinking=False) is None
    assert answer_text("<think>Hello", with_thinking=True) == "<think>Hello"
    assert answer_text(" \n", with_thinking=True) is None


def test_a_reward_is_the_sigmoid_of_the_shifted_score() -> None:
    assert reward_of(0.0, CONFIG) == 0.5
    # e^-ln 3 = 1/3, and 1 / (1 + 1/3) = 3/4; the other side is 1/4.
    assert reward_of(math.log(3), CONFIG) == pytest.approx(0.75)
    assert reward_of(-math.log(3), CONFIG) == pytest.approx(0.25)
    shifted = RewardModelConfig(shift=2.0, scale=4.0)
    assert reward_of(2.0, shifted) == 0.5
    assert reward_of(2.0 + 4 * math.log(3), shifted) == pytest.approx(0.75)
    assert [reward_of(score, CONFIG) for score in (-1e6, 1e6)] == [0.0, 1.0]
    for wrong in ({"scale": 0.0}, {"scale": math.inf}, {"shift": math.nan}, {"max_missing": 2}):
        with pytest.raises(ValueError):
            RewardModelConfig(**wrong)


def test_every_pair_is_scored_once_and_a_resumed_run_asks_only_for_the_rest(
    server: ScoreServer, tmp_path: Path
) -> None:
    server.failures = {"score 0.25": [status(401)]}
    with pytest.raises(StageError, match="needs another key"):
        score(tmp_path, score_urls=[server.url])
    kept = {json.loads(line)["problem_id"] for line in lines_with_scores(tmp_path)}
    assert 2 <= len(kept) < 12
    other = ScoreServer()
    found = score(tmp_path, score_urls=[other.url])
    other.stop()
    assert found.scores == SCORES and found.missing == {}
    assert len(other.asked_about()) == 12 - len(kept)
    assert found.figures == {"scored": 12, "missing": {}}
    urls = [(facts["url"], facts["model"]) for facts in found.described["servers"]]
    assert urls == [(server.url, "reward"), (other.url, "reward")]
    # All are in the log, so no server is needed.
    assert score(tmp_path).scores == SCORES


def lines_with_scores(path: Path) -> list[str]:
    return [line for line in log_of(path).read_text().splitlines() if "score" in json.loads(line)]


def test_failures_are_retried_and_counted(server: ScoreServer, tmp_path: Path) -> None:
    server.failures = {
        "score 0.25": [status(500), drop],
        "score 0.5": [lambda handler, body: bool(send(handler, 200, {"data": []})) or True],
    }
    found = score(tmp_path, score_urls=[server.url])
    assert found.scores == SCORES
    assert found.figures["retried"] == {"bad answer": 1, "connection": 1, "status 500": 1}


def test_too_long_and_too_late_are_counted_and_over_a_share_an_error(
    server: ScoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preference_scorers, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(preference_scorers, "RETRIES", 1)

    def refused() -> None:
        server.failures = {"score 0.25": [too_long], "score 1.0": [wait(0.6)] * 2}

    refused()
    found = score(tmp_path, LOOSE, score_urls=[server.url])
    late, long = ("p08", 2), ("p05", 2)
    assert found.missing == {long: "too_long", late: "timeout"}
    assert found.scores == {key: one for key, one in SCORES.items() if key not in found.missing}
    figures = {"scored": 10, "missing": {"timeout": 1, "too_long": 1}, "retried": {"timeout": 2}}
    assert found.figures == figures
    # Those without a score are asked about again.
    refused()
    again = score(tmp_path, LOOSE, score_urls=[server.url])
    assert again.missing == found.missing
    refused()
    expected = r"1 of 12 responses have no score \(\{'too_long': 1\}\).*max_missing 1.0%.*p05/2"
    server.failures.pop("score 1.0")
    with pytest.raises(StageError, match=expected):
        score(tmp_path, score_urls=[server.url])


@pytest.mark.parametrize(
    ("text", "scores", "message"),
    [
        ("score 0.25", [0.25, 1.0], "2 classes, a reward model has 1"),
        ("score 0.25", [math.nan], "score is nan, expected a finite number"),
        ("score 0.25", [-math.inf], "score is -inf, expected a finite number"),
        ("2", [0.25, 1.0], "2 classes"),  # already the trial
    ],
)
def test_a_score_that_is_none_is_an_error(
    server: ScoreServer, tmp_path: Path, text: str, scores: list[float], message: str
) -> None:
    server.scores = {text: scores}
    with pytest.raises(StageError, match=message):
        score(tmp_path, score_urls=[server.url])
    asked = server.asked_about()
    assert (asked == []) == (text == "2")


def test_what_is_not_a_reward_model_is_an_error_before_anything_is_scored(
    server: ScoreServer, tmp_path: Path
) -> None:
    # A generative server has no /classify; NaN is no JSON, so vLLM refuses to answer.
    server.failures = {"2": [status(404), not_json]}
    with pytest.raises(StageError, match="does not serve a reward model.*404.*--runner pooling"):
        score(tmp_path, score_urls=[server.url])
    with pytest.raises(StageError, match="score is NaN or infinite"):
        score(tmp_path, score_urls=[server.url])
    server.named = "other"
    with pytest.raises(StageError, match="answers for the model 'other', expected 'reward'"):
        score(tmp_path, score_urls=[server.url])
    server.models = [{"id": "policy"}]
    with pytest.raises(StageError, match="offers policy, not 'reward'.*set reward_model.model"):
        score(tmp_path, score_urls=[server.url])
    server.models = [{"id": "reward", "max_model_len": 256}]
    with pytest.raises(StageError, match="256 tokens.*reward_model.max_model_len is 512"):
        score(tmp_path, score_urls=[server.url])
    assert server.asked_about() == []


def test_a_model_that_disappears_is_an_error(server: ScoreServer, tmp_path: Path) -> None:
    def leave(handler: Any, body: dict[str, Any]) -> bool:
        server.models = [{"id": "policy"}]
        send(handler, 404, {"error": VLLM_ERRORS[404]})
        return True

    server.failures = {"score 0.25": [leave, *[status(404)] * 9]}
    with pytest.raises(StageError, match="status 404.*after 4 retries.*scores are kept"):
        score(tmp_path, score_urls=[server.url])


def test_without_a_server_or_weights_the_error_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="placement.score_urls.*scoring: .*engine: local"):
        score(tmp_path)
    with pytest.raises(StageError, match="engine: local needs .*input reward_model"):
        score(tmp_path, LOCAL)
    with pytest.raises(StageError, match="placement.scoring needs .*input reward_model"):
        score(tmp_path, scoring={"executable": "vllm"})
    with pytest.raises(StageError, match="no answer.*placement.score_urls"):
        score(tmp_path, score_urls=["http://127.0.0.1:9/v1"])


def test_the_server_is_started_guarded_and_restarted_if_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No retries: what the server's end broke is not the request's failure.
    monkeypatch.setattr(preference_scorers, "RETRIES", 0)
    monkeypatch.setenv("PYTHONPATH", "/of/the/shell", prepend=os.pathsep)
    model = write(tmp_path / "model")

    def kill() -> None:
        wait_for(lambda: log_of(tmp_path).exists() and len(lines_with_scores(tmp_path)) > 2)
        os.kill(starts(tmp_path)[0][0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    found = score(tmp_path, model=model, **scoring(tmp_path, slow=0.3))
    killer.join()
    assert found.scores == SCORES and found.missing == {}
    assert 1 <= found.figures["retried"]["connection"] <= 2
    assert len(starts(tmp_path)) == 2 and all_gone(tmp_path)
    log = (tmp_path / "logs" / "grade-12345678.reward_model.log").read_text()
    words = json.loads(log.partition("stand-in starts: ")[2].splitlines()[0])
    assert words[:4] == ["serve", str(model), "--served-model-name", "reward"]
    assert words[-4:] == ["--runner", "pooling", "--middleware", "pclr_guard.Guard"]
    assert f"PYTHONPATH: {GUARD_FOLDER}:/of/the/shell" in log
    assert len(found.described["servers"]) == 1
    files = {name: hash_file(model / name) for name in ("config.json", "model.safetensors")}
    assert found.described["model_fingerprint"] == fingerprint(files)


def test_a_server_that_is_lost_too_often_stops_the_stage_and_scores_are_kept(
    tmp_path: Path,
) -> None:
    model = write(tmp_path / "model")
    kept = ScoreServer()
    score(tmp_path, pairs=PAIRS[:5], score_urls=[kept.url])
    kept.stop()
    lost = "(?s)the server was lost 2 times, restarts is 1.*the last lines:.*stand-in starts"
    with pytest.raises(StageError, match=lost):
        score(tmp_path, model=model, **scoring(tmp_path, "dies_when_asked", restarts=1))
    assert len(starts(tmp_path)) == 2 and all_gone(tmp_path)
    assert len(lines_with_scores(tmp_path)) == 5


def test_servers_that_are_started_once_score_several_sets_of_pairs(tmp_path: Path) -> None:
    model = write(tmp_path / "model")
    where = StageContext("rl", tmp_path / "refused.jsonl", placement=Placement(**scoring(tmp_path)))
    found = []
    with opened(CONFIG, where, model, tmp_path / "server.log") as scorer:
        for number, part in enumerate((PAIRS[:5], PAIRS[5:])):
            tally = Tally(ScoreLog(tmp_path / f"{number}.jsonl"), len(part), 0.0)
            scorer.score(iter(part), tally)
            tally.log.close()
            found.append(tally.log.scores)
    assert found == [
        {pair.key: SCORES[pair.key] for pair in part} for part in (PAIRS[:5], PAIRS[5:])
    ]
    assert len(starts(tmp_path)) == 1 and all_gone(tmp_path)


def test_the_launch_file_names_servers_or_how_they_are_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    urls, started_here = ["https://rm/v1"], {"executable": "vllm"}
    with pytest.raises(ValueError, match="either score_urls or scoring for the reward model"):
        Placement(score_urls=urls, scoring=started_here)
    with pytest.raises(ValueError, match="api_keys: http://a/v1 is not one of score_urls"):
        Placement(score_urls=urls, api_keys={"http://a/v1": "KEY"})
    monkeypatch.setenv("KEY", "s3cret")
    placement = Placement(score_urls=urls, api_keys={"https://rm/v1/": "KEY"})
    assert addresses(placement.score_urls, placement) == {"https://rm/v1": "s3cret"}
    three = {**started_here, "servers": 2, "environment": {"CUDA_VISIBLE_DEVICES": "0,1,2"}}
    with pytest.raises(ValueError, match="scoring: CUDA_VISIBLE_DEVICES names 3 devices"):
        Placement(scoring=three)


def test_a_key_is_sent_to_classify_and_to_no_other_server(
    server: ScoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "s3cret")
    other = ScoreServer()
    keys = {server.url: "KEY"}
    assert score(tmp_path, score_urls=[server.url, other.url], api_keys=keys).scores == SCORES
    other.stop()
    assert len(server.asked) > 1 and server.shown == {"Bearer s3cret"}
    assert len(other.asked) > 1 and other.shown == {None}


def test_the_local_scorer_counts_courteous_words(tmp_path: Path) -> None:
    model = write(tmp_path / "model")
    answers = ["Hi.", "Hello Ben, welcome!", "Thank you, dear Ben, thanks!", "no " * 600]
    pairs = [Pair(("p", i), "Greet Ben.", text) for i, text in enumerate(answers)]
    config = LOCAL.model_copy(update={"max_missing": 0.25})
    found = score(tmp_path, config, pairs, model)
    expected = [expected_score(model, "Greet Ben.", text) for text in answers[:3]]
    assert [found.scores[("p", i)] for i in range(3)] == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) == 3
    assert found.missing == {("p", 3): "too_long"}
    # What is in the log is not scored again, and what was scored with it does not matter.
    lines = lines_with_scores(tmp_path)
    log_of(tmp_path).write_text(lines[1] + "\n")
    assert score(tmp_path, config, pairs, model).scores == found.scores


def test_a_local_score_that_is_none_is_an_error(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    model = write(tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    weights["score.weight"] = weights["score.weight"] * float("nan")
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(StageError, match="score is nan, expected a finite number"):
        score(tmp_path, LOCAL, PAIRS, model)
