"""Grades responses while others are still being sampled.

    a response arrives   -> its program is tested in a sandbox, while the sampler works
    all have arrived     -> the reward model scores the texts, and every response gets a verdict

What takes long is logged in the folder of the responses (tests, scores), so that a killed run does
not begin again. Sandboxes and reward model are opened once, for all rounds of the stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.config import GradeConfig, KindMethod
from pcl_reasoner.grade.reading import Question
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.inference.response_log import FAILED, ResponseLog
from pcl_reasoner.sandbox.opening import Choice, choose, opened
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.run import Result
from pcl_reasoner.verifiers.answers import Verdict, grade_by_rule, prepare
from pcl_reasoner.verifiers.checked import (
    instructions_verdict,
    program_of,
    tests_of,
    tests_verdict,
)
from pcl_reasoner.verifiers.logs import SCORE_LOG, TEST_LOG
from pcl_reasoner.verifiers.preference import answer_text, reward_of
from pcl_reasoner.verifiers.preference_scorers import Pair, ScoreLog, Scorer, Tally
from pcl_reasoner.verifiers.preference_scorers import opened as opened_scorer
from pcl_reasoner.verifiers.programs import TestLog, log_line
from pcl_reasoner.verifiers.sandbox_log import made_by


class Questions(Protocol):
    """Says what grading needs of a problem."""

    def question(self, problem: str) -> Question:
        """Return what grading needs of a problem."""


class Graders:
    """What grades the responses of a stage; a context manager.

    Args:
        config: How each kind is graded.
        kinds: The kinds of all problems that will be asked.
        model: The reward model's folder; None: it is not needed, or servers have it.
        context: ``placement`` says where programs run, and names the reward model's servers.
        log: File for the output of servers that are started here.
    """

    def __init__(
        self,
        config: GradeConfig,
        kinds: set[str],
        model: Path | None,
        context: StageContext,
        log: Path,
    ) -> None:
        self.config, self.model, self.context, self.log = config, model, context, log
        self.methods = {config.kinds[kind] for kind in kinds}  # type: ignore[index]
        self.choice: Choice | None = None
        self.sandboxes: Sandboxes | None = None
        self.scorer: Scorer | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Open what the problems need.

        Raises:
            StageError: No sandbox can be had, or there is no reward model.
        """
        with ExitStack() as stack:
            if "tests" in self.methods:
                placement = self.context.placement.sandbox
                self.choice = choose(self.config.sandbox, placement)
                sandboxes = opened(self.config.sandbox, placement, self.choice)
                self.sandboxes = stack.enter_context(sandboxes)
            if "reward_model" in self.methods:
                settings = self.config.reward_model
                scorer = opened_scorer(settings, self.context, self.model, self.log)
                self.scorer = stack.enter_context(scorer)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Close the sandboxes and end the servers."""
        self._stack.close()

    def described(self) -> dict[str, Any]:
        """Return which sandbox tested programs; empty if none did."""
        return {} if self.choice is None else {"sandbox": made_by(self.choice)}


class Grading:
    """Grades one set of responses.

    Args:
        graders: What grades.
        problems: The problems of the responses.
        folder: Folder of the logs; it has them already if an earlier run was killed.
    """

    def __init__(self, graders: Graders, problems: Questions, folder: Path) -> None:
        self.graders, self.problems, self.folder = graders, problems, folder
        self.config = graders.config
        self._running: dict[Future[Result], Key] = {}
        self._last: tuple[str, Question] | None = None
        self._tests: TestLog | None = None
        self._unscored: set[Key] = set()
        """Responses that the reward model could not score: they failed, and have no reward."""
        if graders.choice is not None:
            by = made_by(graders.choice)
            self._tests = TestLog(folder / TEST_LOG, by, graders.context.warn)

    def begin(self, record: Record) -> None:
        """Start the tests of a response that has arrived, if it has a program."""
        key: Key = (record["problem_id"], record["sample_index"])
        self._keep([one for one in self._running if one.done()])
        if self._tests is None or key in self._tests or record["finish_reason"] in FAILED:
            return
        question = self._question(key[0])
        if self._method(question) != "tests":
            return
        tests = tests_of(key[0], question.kind, question.checks)
        code = program_of(record["response"] or "", tests)
        if code is not None:
            assert self.graders.sandboxes is not None
            stop = self.config.code_reward == "all"
            self._running[self.graders.sandboxes.submit(code, tests, stop)] = key

    def finish(self, records: ResponseLog) -> dict[Key, Verdict]:
        """Wait for all tests, score texts, and return the verdict on every response.

        Raises:
            StageError: A problem lacks what its kind needs, or a sandbox or server fails.
        """
        running = list(self._running)
        wait(running)
        self._keep(running)
        scores = self._scored(records)
        self._prepare(records)
        verdicts = {}
        for record in records.read(records.keys()):
            key: Key = (record["problem_id"], record["sample_index"])
            verdicts[key] = self._verdict(key, record, scores)
        return verdicts

    def close(self) -> None:
        """Close the logs; they stay in the folder."""
        if self._tests is not None:
            self._tests.close()

    def _keep(self, done: list[Future[Result]]) -> None:
        """Write results of programs to the log."""
        if done and self._tests is not None:
            lines = [log_line(self._running.pop(one), one.result()) for one in done]
            self._tests.add(lines)

    def _question(self, problem: str) -> Question:
        # A problem's responses mostly come one after the other, and its tests may be large.
        if self._last is None or self._last[0] != problem:
            self._last = (problem, self.problems.question(problem))
        return self._last[1]

    def _method(self, question: Question) -> KindMethod:
        return self.config.kinds[question.kind]

    def _scored(self, records: ResponseLog) -> Mapping[Key, float]:
        """Return the reward model's score of each text that has one."""
        if self.graders.scorer is None:
            return {}
        pairs = list(self._pairs(records))
        settings = self.config.reward_model
        log = ScoreLog(self.folder / SCORE_LOG)
        try:
            tally = Tally(log, len(pairs), settings.max_missing, self.graders.context.progress)
            self.graders.scorer.score(iter([one for one in pairs if one.key not in log]), tally)
        finally:
            log.close()
        self._unscored = set(tally.missing)
        return log.scores

    def _pairs(self, records: ResponseLog) -> Iterator[Pair]:
        for record in records.read(records.keys()):
            question = self._question(record["problem_id"])
            if self._method(question) != "reward_model" or record["finish_reason"] in FAILED:
                continue
            text = answer_text(record["response"] or "", self.config.reward_model.with_thinking)
            if text is not None:
                yield Pair((record["problem_id"], record["sample_index"]), question.problem, text)

    def _prepare(self, records: ResponseLog) -> None:
        """Compare the answers in boxes on all cores."""
        found = ((self._question(one["problem_id"]), one) for one in records.read(records.keys()))
        prepare(
            (one["response"] or "", question.truth, one["finish_reason"])
            for question, one in found
            if self._method(question) == "answer"
        )

    def _verdict(self, key: Key, record: Record, scores: Mapping[Key, float]) -> Verdict:
        question, reason = self._question(key[0]), record["finish_reason"]
        if reason in FAILED:
            return Verdict(reason, None)
        response, method = record["response"] or "", self._method(question)
        if method == "tests":
            assert self._tests is not None
            weak_is_wrong = self.config.sandbox.weak == "refuse"
            rule = self.config.code_reward
            result = self._tests.results.get(key)
            return tests_verdict(result, response, reason, rule, weak_is_wrong)
        if method == "instructions":
            rule = self.config.instruction_reward
            return instructions_verdict(key[0], question.checks, response, rule)
        if method == "reward_model":
            if key not in scores:
                return Verdict("error" if key in self._unscored else "unfinished", None)
            reward = reward_of(scores[key], self.config.reward_model)
            return Verdict("scored", None, reward, scores[key])
        return grade_by_rule(response, question.truth, reason)
