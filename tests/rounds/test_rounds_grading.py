"""Responses are graded while others arrive; what takes long is not done twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest
from log_helpers import rewrite
from reward_model import expected_score, write
from rl_helpers import RIGHT, WRONG, Given, Reply, Row, graders_of, pool_of, rl_config
from sandbox_helpers import need

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.rounds.grading import Graders
from pcl_reasoner.rounds.making import RESPONSE_LOG, Answers, settings_of
from pcl_reasoner.rounds.pool import Pool
from pcl_reasoner.sandbox.run import Result
from pcl_reasoner.verifiers.answers import Verdict
from pcl_reasoner.verifiers.logs import SCORE_LOG, TEST_LOG
from pcl_reasoner.verifiers.preference import reward_of

CASES = [{"args": [3], "out": 4}, {"args": [5], "out": 6}]
CODE = {"tests": {"format": "functional", "entry": "f", "cases": CASES}}
WORDS = {"instructions": [{"id": "punctuation:no_comma", "kwargs": {}}]}
ROWS = [
    Row("c", "Write f.", "code", "", CODE),
    Row("i", "Name two animals.", "instruction", "", WORDS),
    Row("m", "7 + 1?"),
    Row("t", "Greet Ben.", "chat", ""),
]
GREETING = "Good day, Ben, and how are you?"


def block(code: str) -> str:
    return f"<think>so</think>\n```python\n{code}\n```"


def replies() -> dict[Key, Reply]:
    texts = {
        ("c", 0): block("def f(x):\n    return x + 1"),
        ("c", 1): block("def f(x):\n    return 4"),
        ("i", 0): "<think>so</think>dog cat",
        ("i", 1): "<think>so</think>dog, cat",
        ("m", 0): RIGHT,
        ("m", 1): WRONG,
        ("t", 0): f"<think>so</think>{GREETING}",
        ("t", 1): "<think>so",
    }
    return {key: Reply(text, [11, 12]) for key, text in texts.items()}


CONFIG = rl_config(n=2, grade={"reward_model": {"engine": "local"}})
KINDS = {"code", "instruction", "math", "chat"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("reward") / "model")


@pytest.fixture(scope="module")
def graders(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Graders]:
    need("unshare")
    with graders_of(CONFIG, KINDS, tmp_path_factory.mktemp("graders"), model) as opened:
        yield opened


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return pool_of(tmp_path / "pool", ROWS, {one.name: [5] for one in ROWS})


def grade(folder: Path, graders: Graders, pool: Pool, sampler: Any) -> dict[Key, Verdict]:
    folder.mkdir(exist_ok=True)
    settings = settings_of(CONFIG, 0, 2)
    return dict(Answers(sampler, graders, pool, pool.names, folder, settings, True).verdicts)


def lines(file: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [one for one in found if "problem_id" in one]


def test_each_kind_has_its_verifier(
    tmp_path: Path, graders: Graders, pool: Pool, model: Path
) -> None:
    folder = tmp_path / "round"
    found = grade(folder, graders, pool, Given(replies()))
    outcomes = {key: (one.outcome, one.reward) for key, one in found.items()}
    score = expected_score(model, "Greet Ben.", GREETING)
    reward = reward_of(score, CONFIG.grade.reward_model)
    assert 0 < reward < 1
    assert outcomes == {
        ("c", 0): ("correct", 1.0),
        ("c", 1): ("incorrect", 0.0),
        ("i", 0): ("correct", 1.0),
        ("i", 1): ("incorrect", 0.0),
        ("m", 0): ("correct", 1.0),
        ("m", 1): ("incorrect", 0.0),
        ("t", 0): ("scored", pytest.approx(reward, abs=1e-4)),
        ("t", 1): ("unfinished", 0.0),
    }
    assert found["t", 0].score == pytest.approx(score, abs=1e-3)
    assert json.loads(found["c", 1].detail or "")["case"] == 1
    assert {(one["problem_id"], one["sample_index"]) for one in lines(folder / TEST_LOG)} == {
        ("c", 0),
        ("c", 1),
    }


class Watched(Given):
    """Draws problem by problem; notes how many programs have been tested before the next one.

    Args:
        log: Where results of programs are written.
        running: Programs that were started.
    """

    def __init__(self, log: Path, running: list[Future[Result]]) -> None:
        super().__init__(replies())
        self.log, self.running = log, running
        self.tested: list[int] = []

    def draw(self, prompts: Any, settings: Any, records: Any, log_probs: bool = False) -> None:
        for prompt in prompts:
            super().draw([prompt], settings, records, log_probs)
            wait(self.running)
            self.tested.append(len(lines(self.log)))


def test_programs_run_while_other_responses_are_drawn(
    tmp_path: Path, graders: Graders, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandboxes = graders.sandboxes
    assert sandboxes is not None
    submit, running = sandboxes.submit, list[Future[Result]]()

    def followed(*arguments: Any) -> Future[Result]:
        running.append(submit(*arguments))
        return running[-1]

    monkeypatch.setattr(sandboxes, "submit", followed)
    sampler = Watched(tmp_path / "round" / TEST_LOG, running)
    grade(tmp_path / "round", graders, pool, sampler)
    # Results are written when the next response arrives: those of c before the last problem.
    assert len(running) == 2
    assert sampler.tested[0] < 2
    assert sampler.tested[1:] == [2, 2, 2]


def test_a_killed_run_tests_and_scores_no_response_again(
    tmp_path: Path, graders: Graders, pool: Pool
) -> None:
    folder = tmp_path / "round"
    whole = grade(folder, graders, pool, Given(replies()))
    # As a kill after grading leaves it. Results that nobody can compute show what is read.
    tests, scores = folder / TEST_LOG, folder / SCORE_LOG
    rewrite(tests, {'"text": "4"': '"text": "as on record"'})
    (scored,) = lines(scores)
    rewrite(scores, {f'"score": {scored["score"]}': '"score": 9.0'})
    again = grade(folder, graders, pool, Given({}))
    assert "as on record" in (again["c", 1].detail or "")
    assert again["t", 0].score == 9.0
    assert {key: one.outcome for key, one in again.items()} == {
        key: one.outcome for key, one in whole.items()
    }
    assert len(lines(tests)) == 2 and len(lines(scores)) == 1


def test_a_log_that_is_cut_off_is_completed(tmp_path: Path, graders: Graders, pool: Pool) -> None:
    folder = tmp_path / "round"
    whole = grade(folder, graders, pool, Given(replies()))
    for name in (RESPONSE_LOG, TEST_LOG, SCORE_LOG):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:-9])
    sampler = Given(replies())
    assert grade(folder, graders, pool, sampler) == whole
    assert sampler.asked == [("t", 1)]


def test_requests_that_failed_are_not_graded(tmp_path: Path, graders: Graders, pool: Pool) -> None:
    failed = {key: Reply("", [], "timeout") for key in replies()}
    found = grade(tmp_path / "round", graders, pool, Given(failed))
    assert {one.outcome for one in found.values()} == {"timeout"}
    assert not lines(tmp_path / "round" / TEST_LOG)


def test_a_text_that_the_reward_model_could_not_score_is_no_failure_of_the_policy(
    tmp_path: Path, graders: Graders, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pairs: Any, tally: Any) -> None:
        for pair in pairs:
            tally.miss(pair, "too long", "it is too long")

    class Refusing:
        score = staticmethod(refuse)

    monkeypatch.setattr(graders, "scorer", Refusing())
    limit = graders.config.reward_model.model_copy(update={"max_missing": 1.0})
    config = graders.config.model_copy(update={"reward_model": limit})
    monkeypatch.setattr(graders, "config", config)
    found = grade(tmp_path / "round", graders, pool, Given(replies()))
    assert found["t", 0] == Verdict("error", None)
    # This one has no end of its think part: nothing was scored, and that is its own fault.
    assert found["t", 1] == Verdict("unfinished", None)


def test_only_what_is_needed_is_opened(tmp_path: Path) -> None:
    with graders_of(CONFIG, {"math", "instruction"}, tmp_path) as opened:
        assert (opened.sandboxes, opened.scorer, opened.described()) == (None, None, {})


def test_a_reward_model_is_needed_for_chat(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="reward_model"), graders_of(CONFIG, {"chat"}, tmp_path):
        pass
