"""The verdict on a response whose problem has tests or instructions.

``share``  10 tests, 4 passed   -> passed_some, score 0.4, reward 0.4,
                                   detail {"passed": 4, "total": 10, "weak": 0, "case": 2,
                                           "reason": "wrong", "text": "7"}
``all``    10 tests, 10 passed  -> correct, score 1, reward 1
           test 2 failed first  -> incorrect, no score, reward 0, the detail's ``passed`` is 2

With ``all``, the tests of a program stop at the first failure. How many of them passed before it
depends on their order, so it is no score.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.instructions.parsing import all_of, parse_instructions, without_answer_tags
from pcl_reasoner.sandbox.test_cases import TestCases, read_test_cases
from pcl_reasoner.verifiers.answers import Outcome, Verdict, after_thinking
from pcl_reasoner.verifiers.code import program_in

if TYPE_CHECKING:
    from pcl_reasoner.sandbox.run import Result

RewardRule = Literal["all", "share"]
"""``all``: 1 if everything holds, else 0; a program's tests stop at the first failure, and then it
has no score. ``share``: the share that holds; all tests run."""


def read_checks(problem: str, checks: str | None) -> dict[str, Any]:
    """Return a problem's checks; empty if it has none.

    Raises:
        StageError: They are no JSON object.
    """
    try:
        found = json.loads(checks) if checks else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise StageError(
            f"problem {problem}: its checks are no JSON object: {(checks or '')[:80]}. Convert its "
            "source again."
        )
    return found


def tests_of(problem: str, kind: str, checks: Mapping[str, Any]) -> TestCases:
    """Return the tests of a problem.

    Raises:
        StageError: It has none, or they cannot be read.
    """
    try:
        return read_test_cases(checks["tests"])
    except (KeyError, ValueError) as error:
        why = "has no tests" if isinstance(error, KeyError) else f"has unreadable tests: {error}"
        raise StageError(
            f"problem {problem} has the kind {kind} and {why}. Convert its source with a format "
            "that reads tests, or set convert.kind to another kind."
        ) from error


def program_of(response: str, tests: TestCases) -> str | None:
    """Return the program of a response; None if it has none."""
    answered = after_thinking(response)
    return None if answered is None else program_in(answered, tests.language)


def tests_verdict(
    result: Result | None, response: str, finish_reason: str, rule: RewardRule, weak_is_wrong: bool
) -> Verdict:
    """Return the verdict on a response with a program.

    Args:
        result: The result of its tests, which stopped at the first failure if the rule is ``all``;
            None if it has no program.
        response: The complete response.
        finish_reason: As in verifiers/answers.py.
        rule: What earns a reward.
        weak_is_wrong: Whether tests that passed in the program's interpreter count as failed.
    """
    if result is None:
        unfinished = finish_reason == "length" or after_thinking(response) is None
        return Verdict("unfinished" if unfinished else "no_code", None, 0.0)
    failure = result.failure
    detail: dict[str, Any] = {"passed": result.passed, "total": result.total, "weak": result.weak}
    if failure is not None:
        detail |= {"case": failure.case, "reason": failure.reason, "text": failure.text}
        if rule == "all":
            return Verdict("incorrect", None, 0.0, None, _json(detail))
    passed = result.passed - (result.weak if weak_is_wrong else 0)
    return _shared(passed, result.total, rule, detail)


def instructions_verdict(
    problem: str, checks: Mapping[str, Any], response: str, rule: RewardRule
) -> Verdict:
    """Return the verdict on a response to a problem with instructions.

    Raises:
        StageError: The problem's instructions cannot be read.
    """
    answered = after_thinking(response)
    if answered is None:
        return Verdict("unfinished", None, 0.0)
    where = f"problem {problem}, checks.instructions"
    instructions = parse_instructions(checks.get("instructions"), where)
    followed = all_of(instructions, without_answer_tags(answered))
    pairs = zip(instructions, followed, strict=True)
    detail = {"not_followed": [one.id for one, holds in pairs if not holds]}
    return _shared(sum(followed), len(followed), rule, detail)


def _shared(passed: int, total: int, rule: RewardRule, detail: Mapping[str, Any]) -> Verdict:
    outcome: Outcome = "incorrect"
    if passed:
        outcome = "correct" if passed == total else "passed_some"
    share = passed / total
    reward = share if rule == "share" else float(passed == total)
    return Verdict(outcome, None, reward, share, _json(detail))


def _json(detail: Mapping[str, Any]) -> str:
    return json.dumps(detail, ensure_ascii=False)
