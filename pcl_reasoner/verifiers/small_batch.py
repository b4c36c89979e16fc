"""Grades a few responses at once, in this process: for the probe of training.

What needs a server or a log is not here: the stage ``grade`` has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.instructions.parsing import parse_instructions
from pcl_reasoner.verifiers.answers import ANSWERED, Verdict, grade_by_rule, prepare
from pcl_reasoner.verifiers.checked import (
    instructions_verdict,
    program_of,
    tests_of,
    tests_verdict,
)

if TYPE_CHECKING:
    from pcl_reasoner.sandbox.pool import Sandboxes

GRADED_HERE: tuple[Kind, ...] = ("math", "science", "code", "instruction")
"""Kinds that need no model of their own."""


@dataclass(frozen=True)
class Answered:
    """A response with its problem.

    Args:
        problem_id: The problem's id.
        kind: One of GRADED_HERE.
        truth: The ground truth, or "".
        checks: What a verifier needs.
        response: The complete response.
        finish_reason: As in verifiers/answers.py.
    """

    problem_id: str
    kind: str
    truth: str
    checks: Mapping[str, Any]
    response: str
    finish_reason: str


def check_gradable(problem: str, kind: str, checks: Mapping[str, Any]) -> None:
    """Check that responses to a problem can be graded here.

    Args:
        problem: Where it is, for errors.
        kind: Its kind.
        checks: What a verifier needs.

    Raises:
        StageError: The kind cannot be graded here, or the problem lacks what its kind needs.
    """
    _check_kind(problem, kind)
    if kind == "code":
        tests_of(problem, kind, checks)
    if kind == "instruction":
        parse_instructions(checks.get("instructions"), f"problem {problem}, checks.instructions")


def _check_kind(problem: str, kind: str) -> None:
    if kind not in GRADED_HERE:
        raise StageError(
            f"problem {problem} has the kind {kind!r}, expected one of {', '.join(GRADED_HERE)}: "
            f"only these can be graded without another model.{nearest(kind, GRADED_HERE)}"
        )


def grade_batch(batch: Sequence[Answered], sandboxes: Sandboxes | None) -> list[Verdict]:
    """Return the verdict on each response; the programs run at the same time.

    Args:
        batch: The responses.
        sandboxes: Needed if a problem is code.

    Raises:
        StageError: A kind cannot be graded here, or a problem lacks what its kind needs.
    """
    programs = {index: _submit(one, sandboxes) for index, one in enumerate(batch)}
    prepare((one.response, one.truth, one.finish_reason) for one in batch if one.kind in ANSWERED)
    found = []
    for index, one in enumerate(batch):
        if one.kind == "code":
            running = programs[index]
            result = None if running is None else running.result()
            verdict = tests_verdict(result, one.response, one.finish_reason, "all", False)
        elif one.kind == "instruction":
            verdict = instructions_verdict(one.problem_id, one.checks, one.response, "all")
        else:
            verdict = grade_by_rule(one.response, one.truth, one.finish_reason)
        found.append(verdict)
    return found


def _submit(one: Answered, sandboxes: Sandboxes | None) -> Any:
    """Start the tests of a response's program; None if it has none, or is not code."""
    _check_kind(one.problem_id, one.kind)
    if one.kind != "code":
        return None
    assert sandboxes is not None
    tests = tests_of(one.problem_id, one.kind, one.checks)
    code = program_of(one.response, tests)
    return None if code is None else sandboxes.submit(code, tests)
