"""Runs a candidate's program against the tests of its problem.

run_tests("def double(x):\\n    return 2 * x", tests, machine)  ->  2 of 2 passed

stdin                  the program runs, its output is compared here
functional, assert     the function is called, its value is compared here
assert, pytest         the tests' code runs in a second sandbox; calls go through this process
… that look into it    the tests' code and the candidate's share an interpreter: "weak"
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from pcl_reasoner.formats.records import encodable
from pcl_reasoner.sandbox.compare import same_output, same_value
from pcl_reasoner.sandbox.fusion import FusionSession
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.session import CompileError, End, Session
from pcl_reasoner.sandbox.test_cases import TestCases, literal_call, needs_one_interpreter
from pcl_reasoner.sandbox_program.child_run import STRETCH
from pcl_reasoner.sandbox_program.values import decode, encode

Reason = Literal[
    "wrong", "exception", "exit", "time", "memory", "output", "lost", "compile", "answer"
]
"""Why a test failed.

``wrong``: another value. ``exception``: the code raised one. ``exit``: it ended with a code.
``time``, ``memory``, ``output``: the limit. ``lost``: its sandbox was killed, e.g. by the
kernel for lack of memory. ``compile``: it does not compile. ``answer``: it returned no plain value.
"""
Make = Callable[[str, dict[str, Any], Limits, int], Session | FusionSession]
"""Starts a sandbox: what runs in it (source.PARTS), the program, its limits, and which of the
sandboxes of this program it is."""
CONTENDED = 0.75
"""Share of its time for which a test that ran out of time waited for a processor, above which it is
tried alone: it was ended before it had its own seconds (sandbox_program/child_run.py)."""
TESTS_OUTPUT = 1 << 26
"""Bytes that the tests' own code may write: the arguments of its calls."""
SHOWN = 500
"""Characters of a text that are kept in a failure."""


@dataclass(frozen=True)
class Failure:
    """A test that failed.

    Args:
        case: Its 0-based number.
        reason: Why.
        text: What was got, or the exception; the first characters, as text that a file can have.
        contended: True if it was ended although other processes had its processor.
    """

    case: int
    reason: Reason
    text: str = ""
    contended: bool = False

    def __post_init__(self) -> None:
        """Replace halves of surrogate pairs: a candidate chooses the text of its exceptions."""
        object.__setattr__(self, "text", encodable(self.text))


@dataclass(frozen=True)
class Result:
    """The result of a program's tests.

    Args:
        passed: Tests that passed.
        total: Tests; those after the first failure may not have run.
        failure: The first failure, or None.
        weak: Tests that passed in the candidate's interpreter.
        contended: Whether a test was ended although other processes had its processor.
    """

    passed: int
    total: int
    failure: Failure | None = None
    weak: int = 0
    contended: bool = False


def run_tests(
    code: str, tests: TestCases, limits: Limits, make: Make, stop: bool = True, apart: bool = True
) -> Result:
    """Run a program against the tests of its problem.

    Each test has a limit of time; all of them together have none, so they take at most the limit
    times the number of tests. Seconds for which a test waited for a processor do not count, so the
    result depends neither on other programs nor on their number.

    Args:
        code: The program.
        tests: The tests.
        limits: What it may use; see `TestCases.limited`.
        make: Starts a sandbox.
        stop: Whether to stop at the first failure.
        apart: Whether the tests' own code can run in a sandbox of its own.

    Raises:
        CannotStart: A sandbox does not start.
    """
    passed, first, weak, contended = 0, None, 0, False
    with Candidate(code, tests, limits, make, apart) as program:
        for number, case in enumerate(tests.cases):
            failure = program.test(number, case)
            weak += failure is None and program.is_weak(case)
            passed += failure is None
            contended = contended or (failure is not None and failure.contended)
            first = first or failure
            if first and (stop or first.reason == "compile"):
                break
    return Result(passed, len(tests.cases), first, weak, contended)


def call_function(
    code: str, name: str, args: list[Any], limits: Limits, make: Make
) -> tuple[Any, Failure | None]:
    """Call a function of some code; return its value, or why there is none."""
    with make("calls", {"language": "python", "code": code}, limits, 0) as session:
        reply = _reply(session, name, args, limits.output_bytes)
        if isinstance(reply, End):
            return None, _ended(0, reply)
    return _value(0, reply)


class Candidate:
    """A candidate's program, in a sandbox that is started again when a test breaks it."""

    def __init__(
        self, code: str, tests: TestCases, limits: Limits, make: Make, apart: bool
    ) -> None:
        self.tests = tests
        self.apart = apart
        self.limits = tests.limited(limits)
        checks = tests.limited(limits, "python")
        self._limits = {
            "candidate": self.limits,
            # They wait for the candidate, whose own time alone counts.
            "tests": replace(checks, seconds=STRETCH * checks.seconds),
            "checker": checks,
        }
        self.program = {"language": tests.language, "code": code}
        self._make = make
        self._sessions: dict[str, Session | FusionSession] = {}

    def __enter__(self) -> Candidate:
        """Return the program."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its sandboxes."""
        for session in self._sessions.values():
            session.close()

    def session(self, kind: str, role: str = "candidate") -> Session | FusionSession:
        """Return a sandbox that is ready: the candidate's, or one for the tests' own code.

        Args:
            kind: What runs in it, one of source.PARTS.
            role: ``candidate``; ``tests``: a sandbox without the candidate's program; ``checker``.
        """
        found = self._sessions.get(role)
        if found is None or not found.alive:
            codes = {"candidate": self.program["code"], "checker": self.tests.checker}
            language = self.tests.language if role == "candidate" else "python"
            program = {"language": language, "code": codes.get(role, "")}
            place = ("candidate", "tests", "checker").index(role)
            found = self._sessions[role] = self._make(kind, program, self._limits[role], place)
        return found

    def is_weak(self, case: Any) -> bool:
        """Return whether a test shares the candidate's interpreter."""
        if self.tests.format not in ("assert", "pytest"):
            return False
        return literal_call(case) is None and (not self.apart or needs_one_interpreter(case))

    def test(self, number: int, case: Any) -> Failure | None:
        """Run one test; return how it failed, or None.

        A sandbox that is lost is tried again: the candidate need not be the reason.
        """
        failure = self._test(number, case)
        if failure is not None and failure.reason == "lost":
            failure = self._test(number, case)
        return failure

    def _test(self, number: int, case: Any) -> Failure | None:
        try:
            if self.tests.format == "stdin":
                return self._program(number, case["input"], case["output"])
            if self.tests.format == "functional":
                return self._call(number, str(self.tests.entry), case["args"], case["out"])
            simple = literal_call(case)
            if simple is not None:
                return self._call(number, *simple)
            if self.is_weak(case):
                return self._shared(number, case)
            return self._remote(number, case)
        except CompileError as error:
            reason: Reason = "lost" if error.limit == "lost" else "compile"
            return Failure(number, reason, str(error)[:SHOWN], error.limit == "time")

    def _output(self, expected: int) -> int:
        """Return how many bytes a test may write, from the characters of what is expected."""
        return self.limits.output_bytes + 4 * expected

    def _program(self, number: int, given: str, expected: str) -> Failure | None:
        start = "binary" if self.tests.language == "cpp" else "program"
        allowed = self._output(len(expected))
        end = self.session("program").run({"start": start, "stdin": given, "output_bytes": allowed})
        if failure := failed(number, end):
            return failure
        if self.tests.checker is None:
            right = same_output(expected, end.stdout)
        else:
            right = self._checked(given, expected, end.stdout)
        return None if right else Failure(number, "wrong", end.stdout[:SHOWN])

    def _checked(self, given: str, expected: str, found: str) -> bool:
        """Ask the problem's own checker."""
        files = {"input.txt": given, "expected.txt": expected, "output.txt": found}
        start = {"start": "program", "files": files, "argv": ["checker.py", *files]}
        end = self.session("program", "checker").run(start)
        return end.code == 0 and end.limit is None and end.stdout.split()[-1:] == ["1"]

    def _call(self, number: int, name: str, args: list[Any], expected: Any) -> Failure | None:
        """Call a function of the candidate; compare its value here."""
        reply = _reply(self.session("calls"), name, args, self._output(len(repr(expected))))
        if isinstance(reply, End):
            return _ended(number, reply)
        value, failure = _value(number, reply)
        if failure is None and not same_value(expected, value):
            failure = Failure(number, "wrong", repr(encode(value))[:SHOWN])
        return failure

    def _remote(self, number: int, code: str) -> Failure | None:
        """Run the tests' code in a sandbox of its own; pass its calls on to the candidate's."""
        candidate, tests = self.session("calls"), self.session("tester", "tests")
        candidate.begin({"start": "calls"})
        tests.begin({"start": "tester", "code": code, "output_bytes": TESTS_OUTPUT})
        try:
            failure = _pass_calls_on(number, candidate, tests)
        finally:
            tests.stop()
            end = candidate.stop()
        return failure or _took_too_much(number, end)

    def _shared(self, number: int, code: str) -> Failure | None:
        """Run the tests' code in the candidate's interpreter; a word shows that it came to the end.

        The word is read before the candidate's code runs.
        """
        session = self.session("tester")
        word = secrets.token_hex(16)
        session.begin({"start": "shared", "code": code})
        session.say(json.dumps({"word": word}))
        line = session.next()
        if isinstance(line, End):
            return _ended(number, line)
        end = session.stop()
        if failure := _took_too_much(number, end):
            return failure
        verdict = _verdict(line) or {}
        if verdict.get("passed") is True and verdict.get("word") == word:
            return None
        return _not_passed(number, verdict)


def failed(number: int, end: End) -> Failure | None:
    """Return why a process that ended did not do its work, or None."""
    if end.limit is not None:
        contended = end.limit == "time" and end.waited > CONTENDED * end.wall
        return Failure(number, end.limit, contended=contended)  # type: ignore[arg-type]
    if end.code == 0:
        return None
    last = end.stderr.strip().splitlines()[-1:] or [f"exit code {end.code}"]
    reason: Reason = "exception" if "Traceback" in end.stderr else "exit"
    return Failure(number, reason, last[0][:SHOWN])


def _ended(number: int, end: End) -> Failure:
    """Return the failure of a process that ended before it answered."""
    return failed(number, end) or Failure(number, "exit", "it ended before it answered")


def _not_passed(number: int, verdict: dict[str, Any]) -> Failure:
    return Failure(number, "wrong", str(verdict.get("error", "no verdict"))[:SHOWN])


def _verdict(line: str) -> dict[str, Any] | None:
    """Return the verdict of the tests' code, or None if the line is a call."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    found = message.get("verdict") if isinstance(message, dict) else {}
    return found if found is None or isinstance(found, dict) else {}


def _pass_calls_on(
    number: int, candidate: Session | FusionSession, tests: Session | FusionSession
) -> Failure | None:
    """Carry lines between the two sandboxes until there is a verdict."""
    while True:
        line = tests.next()
        if isinstance(line, End):
            return _ended(number, line)
        verdict = _verdict(line)
        if verdict is not None:
            passed = verdict.get("passed") is True
            return None if passed else _not_passed(number, verdict)
        candidate.say(line)
        reply = candidate.next()
        if isinstance(reply, End):
            return _ended(number, reply)
        tests.say(reply)


def _took_too_much(number: int, end: End | None) -> Failure | None:
    """Return a failure if the kernel had to end processes of a candidate that had answered."""
    over = end is not None and end.limit == "memory"
    return Failure(number, "memory") if over else None


def _reply(
    session: Session | FusionSession, name: str, args: list[Any], output_bytes: int
) -> str | End:
    """Call a function; return the line that it answers, or how its process ended."""
    request = json.dumps({"op": "run", "name": name, "args": encode(tuple(args))})
    start = {"start": "calls", "lines": [request], "replies": 1, "output_bytes": output_bytes}
    session.begin(start)
    line = session.next()
    end = session.finish()
    return end if end is not None and end.limit == "memory" else line


def _value(number: int, line: str) -> tuple[Any, Failure | None]:
    """Return the value that a reply has, or why it has none. Nothing in the reply is trusted."""
    try:
        reply = json.loads(line)
        if "raised" in reply:
            told = reply["raised"]
            text = f"{told['class'][3][0]}: {told['text']}"
            return None, Failure(number, "exception", text[:SHOWN])
        return decode(reply["value"]), None
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        return None, Failure(number, "answer", f"no plain value: {error}"[:SHOWN])
