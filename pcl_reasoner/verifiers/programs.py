"""Tests the programs of responses, and keeps the results while a stage runs.

The log's first line says which sandbox it was (sandbox_log.py); then:

Program(("9f0c…", 3), "def double(x): …", tests) -> log line
{"problem_id": "9f0c…", "sample_index": 3, "passed": 4, "total": 10, "weak": 0, "case": 4,
 "reason": "wrong", "text": "7"}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import Progress, StageContext
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.sandbox.opening import Choice, choose, opened
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.run import Failure, Result
from pcl_reasoner.sandbox.test_cases import TestCases
from pcl_reasoner.verifiers.logs import TEST_LOG
from pcl_reasoner.verifiers.sandbox_log import SandboxLog, made_by
from pcl_reasoner.verifiers.window import done_in_window

_AHEAD = 4
"""Programs per worker that are read before their turn comes."""


@dataclass(frozen=True)
class Program:
    """A program to test.

    Args:
        key: The response's key.
        code: The program.
        tests: The tests of its problem.
    """

    key: Key
    code: str
    tests: TestCases


class TestLog(SandboxLog):
    """The results of a running stage; its arguments are those of `SandboxLog`."""

    __test__ = False

    def __init__(self, path: Path, by: dict[str, str], warn: Callable[[str], None]) -> None:
        self.results: dict[Key, Result] = {}
        super().__init__(path, by, warn)

    def note(self, answer: Record) -> None:
        """Keep a result in memory."""
        failure = None
        if answer["case"] is not None:
            failure = Failure(answer["case"], answer["reason"], answer["text"])
        found = Result(answer["passed"], answer["total"], failure, answer["weak"])
        self.results[(answer["problem_id"], answer["sample_index"])] = found


def log_line(key: Key, result: Result) -> Record:
    """Return the log's line for a result."""
    failure = result.failure
    return {
        "problem_id": key[0],
        "sample_index": key[1],
        "passed": result.passed,
        "total": result.total,
        "weak": result.weak,
        "case": failure and failure.case,
        "reason": failure and failure.reason,
        "text": failure and failure.text,
    }


@dataclass(frozen=True)
class Tested:
    """The result of each program, the sandbox, and counts."""

    results: dict[Key, Result]
    described: dict[str, Any]
    figures: dict[str, Any]


def test_all(
    config: SandboxConfig,
    programs: Iterable[Program],
    total: int,
    output: Path,
    context: StageContext,
    stop: bool,
) -> Tested:
    """Test every program that is not in the log yet; return the results of all.

    Args:
        config: What the programs may use.
        programs: The programs, in any order.
        total: Number of programs, for progress.
        output: The stage's folder; it has the log if an earlier run was killed.
        context: ``placement.sandbox`` says how and where programs run.
        stop: Whether a program's first failure ends its tests.

    Raises:
        StageError: No sandbox can be had here, or one does not start.
    """
    placement = context.placement.sandbox
    choice = choose(config, placement)
    log = TestLog(output / TEST_LOG, made_by(choice), context.warn)
    try:
        untested = (program for program in programs if program.key not in log)
        with opened(config, placement, choice) as sandboxes:
            _test(sandboxes, untested, log, total, context.progress, stop)
    finally:
        log.close()
    return Tested(log.results, _described(config, choice), _figures(log))


def _test(
    sandboxes: Sandboxes,
    programs: Iterable[Program],
    log: TestLog,
    total: int,
    progress: Progress,
    stop: bool,
) -> None:
    def submit(program: Program) -> Future[Result]:
        return sandboxes.submit(program.code, program.tests, stop)

    for done in done_in_window(submit, programs, _AHEAD * sandboxes.workers):
        log.add(log_line(program.key, result) for program, result in done)
        progress.update(len(log), total, "programs")


def _described(config: SandboxConfig, choice: Choice) -> dict[str, Any]:
    settings = config.model_dump(mode="json")
    # The fingerprint has only the interpreter's name: a plan may be made on another machine.
    return {**settings, **made_by(choice), "memory_limited_by": choice.memory}


def _figures(log: TestLog) -> dict[str, Any]:
    """Count programs, weak tests, and failures by reason."""
    found = log.results.values()
    reasons = Counter(one.failure.reason for one in found if one.failure)
    return {
        "tested": len(log),
        "passed_all": sum(one.failure is None for one in found),
        "weak_tests": sum(one.weak for one in found),
        "failures": dict(sorted(reasons.items())),
    }
