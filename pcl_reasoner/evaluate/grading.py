"""Grades the responses to a benchmark's questions, by the question's kind.

math, science   the boxed answer, by rule
code            the question's tests, in a sandbox, e.g. LiveCodeBench's
instruction     the question's instructions, e.g. IFEval's
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.evaluate.benchmark import Question
from pcl_reasoner.evaluate.summary import Sample, grade_sample, sample_of
from pcl_reasoner.inference.response_log import FAILED
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.verifiers.answers import ANSWERED, prepare
from pcl_reasoner.verifiers.checked import (
    instructions_verdict,
    program_of,
    read_checks,
    tests_of,
    tests_verdict,
)

if TYPE_CHECKING:
    from pcl_reasoner.inference.response_log import ResponseLog
    from pcl_reasoner.sandbox.run import Result
    from pcl_reasoner.verifiers.kept_checks import KeptChecks
    from pcl_reasoner.verifiers.programs import Program


def check_sandbox(
    config: SandboxConfig, questions: Sequence[Question], context: StageContext
) -> None:
    """Find out whether programs can be tested here, before hours of sampling.

    Raises:
        StageError: There are questions with tests, and no sandbox can be had here.
    """
    if any(question.kind == "code" for question in questions):
        from pcl_reasoner.sandbox.opening import choose

        choose(config, context.placement.sandbox)


class Grading:
    """Grades all responses of one evaluation.

    Args:
        sandbox: Limits of programs.
        questions: All questions.
        records: Their responses.
        n: Responses per question.
        kept: The questions' checks.
    """

    def __init__(
        self,
        sandbox: SandboxConfig,
        questions: Sequence[Question],
        records: ResponseLog,
        n: int,
        kept: KeptChecks,
    ) -> None:
        self.sandbox, self.questions, self.records, self.n = sandbox, questions, records, n
        self.kept = kept
        self.results: dict[tuple[str, int], Result] = {}
        self.described: dict[str, Any] = {}
        """Settings and figures of the sandbox; empty if no question has tests."""

    def responses(self, question: Question) -> list[dict[str, Any]]:
        """The responses to a question."""
        return list(self.records.read([(question.key, index) for index in range(self.n)]))

    def test(self, output: Path, context: StageContext) -> None:
        """Test the programs of all questions with tests.

        Raises:
            StageError: No sandbox can be had here, or a question's tests cannot be read.
        """
        coded = [question for question in self.questions if question.kind == "code"]
        if not coded:
            return
        from pcl_reasoner.verifiers.programs import test_all

        total = len(coded) * self.n
        programs = self._programs(coded)
        tested = test_all(self.sandbox, programs, total, output, context, stop=True)
        self.results = tested.results
        self.described = {**tested.described, **tested.figures}

    def _programs(self, coded: Sequence[Question]) -> Iterator[Program]:
        from pcl_reasoner.verifiers.programs import Program

        for question in coded:
            tests = tests_of(question.key, question.kind, self._checks(question))
            for index, one in enumerate(self.responses(question)):
                code = program_of(one["response"], tests)
                if code is not None and one["finish_reason"] not in FAILED:
                    yield Program((question.key, index), code, tests)

    def prepare(self) -> None:
        """Compare the answers to all questions on all cores."""
        prepare(
            (one["response"], question.answer, one["finish_reason"] or "stop")
            for question in self.questions
            if question.kind in ANSWERED
            for one in self.responses(question)
        )

    def samples(self, question: Question, found: Sequence[dict[str, Any]]) -> list[Sample]:
        """Return the graded responses to a question."""
        checks = self._checks(question) if question.kind == "instruction" else {}
        return [self._sample(question, checks, index, one) for index, one in enumerate(found)]

    def _sample(
        self, question: Question, checks: dict[str, Any], index: int, one: dict[str, Any]
    ) -> Sample:
        text, reason, tokens = one["response"], one["finish_reason"], one["n_tokens"]
        if question.kind in ANSWERED or reason in FAILED:
            return grade_sample(text, question.answer, reason, tokens)
        if question.kind == "code":
            result = self.results.get((question.key, index))
            verdict = tests_verdict(result, text, reason, "all", self.sandbox.weak == "refuse")
        else:
            verdict = instructions_verdict(question.key, checks, text, "all")
        return sample_of(verdict, text, reason, tokens)

    def _checks(self, question: Question) -> dict[str, Any]:
        return read_checks(question.key, self.kept.of(question.key))
