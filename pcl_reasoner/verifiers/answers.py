"""Grades a response by rule: compares the answer in its last box with the ground truth.

    response      "<think>3 + 5 = 8</think><answer>\\\\boxed{008}</answer>"
    ground truth  "8"
    verdict       correct, answer "008"

Only the text after ``</think>`` counts. A response that was cut off while thinking has no
answer, even if its last number is the correct one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.verifiers.equivalence import Report, compare_all, equivalent

Outcome = Literal[
    "correct",
    "passed_some",
    "scored",
    "incorrect",
    "no_box",
    "no_code",
    "unfinished",
    "timeout",
    "error",
]

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""Possible verdicts. ``passed_some``: some instructions, not all; the same for tests, where all
run. ``scored``: a number, neither right nor wrong. ``no_box``, ``no_code``: there is no boxed
answer, or no program. ``unfinished``: cut off without an answer. ``timeout``, ``error``: request or
grading failed. Only ``correct`` and ``scored`` earn a reward, and ``passed_some`` where the share
counts."""

ANSWERED: tuple[Kind, ...] = ("math", "science")
"""Kinds of problems whose responses have an answer in a box."""
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_ESCAPED_OR_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_SPACING = re.compile(r"(?<!\\)\\[!,;: ]")
"""LaTeX's spacing commands. In ``\\\\``, which ends a matrix row, the second begins none."""
_ASCII = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}
"""Full-width digits, letters and punctuation, as in Chinese text, -> ASCII."""
_CHINESE_UNIT = re.compile(r"(?<=[0-9}])\s*[\u4e00-\u9fff]+$")
_INTEGER = re.compile(r"([+-]?)([0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)")


@dataclass(frozen=True)
class Verdict:
    """The result of grading a response.

    Args:
        outcome: One of OUTCOMES.
        answer: The text in the last box; None if there is none.
        share: The reward where it is not all or nothing, in [0, 1].
        score: The raw number behind the reward, e.g. the reward model's; None if there is none.
        detail: More about the verdict, as JSON, e.g. the first test that failed.
    """

    outcome: Outcome
    answer: str | None
    share: float | None = None
    score: float | None = None
    detail: str | None = None

    @property
    def reward(self) -> float:
        """The share; without one, 1.0 for a correct answer and 0.0 for every other outcome."""
        if self.share is not None:
            return self.share
        return 1.0 if self.outcome == "correct" else 0.0

    def overridden(self, correct: bool) -> Verdict:
        """Return a verdict with the same answer and the outcome that a judge or a person gave."""
        return Verdict("correct" if correct else "incorrect", self.answer)


def grade_by_rule(response: str, ground_truth: str, finish_reason: str) -> Verdict:
    """Grade one response by comparing its last boxed answer with the ground truth.

    Args:
        response: The complete response, think part included.
        ground_truth: The correct answer, plain or LaTeX.
        finish_reason: Why sampling ended: ``stop``, ``length``, ``error`` or ``timeout``.
    """
    answered = after_thinking(response)
    answer = last_boxed(answered or "")
    if (failure := why_no_answer(answered, finish_reason)) or answer is None:
        return Verdict(failure or "no_box", None)
    return Verdict(_compare(answer, ground_truth), answer)


def prepare(
    responses: Iterable[tuple[str, str, str]], report: Report = lambda done, total: None
) -> None:
    """Compare the answers of many responses on all cores, so that `grade_by_rule` has no work.

    Args:
        responses: Response, ground truth and finish reason, as in `grade_by_rule`.
        report: Called with the number of comparisons that are done, and of all.
    """
    pairs = []
    for response, ground_truth, finish_reason in responses:
        answered = after_thinking(response)
        answer = last_boxed(answered or "")
        if answer is not None and why_no_answer(answered, finish_reason) is None:
            found = _by_text(answer, ground_truth)
            pairs += [found] if isinstance(found, tuple) else []
    compare_all(pairs, report=report)


def why_no_answer(answered: str | None, finish_reason: str) -> Outcome | None:
    """Return the outcome of a response that failed or has no answer; None if it has an answer.

    Args:
        answered: The text after ``</think>``; None if the think part was never closed.
        finish_reason: As in grade_by_rule.
    """
    if finish_reason == "error":
        return "error"
    if finish_reason == "timeout":
        return "timeout"
    if answered is None:
        return "unfinished"
    if last_boxed(answered) is None:
        return "unfinished" if finish_reason == "length" else "no_box"
    return None


def after_thinking(response: str) -> str | None:
    """Return the text after the last ``</think>``; None if absent or followed by ``<think>``."""
    _, closed, rest = response.rpartition("</think>")
    if not closed or "<think>" in rest:
        return None
    return rest


def without_thinking(reply: str) -> str | None:
    """Return what follows a reply's think part; the whole reply if it has none.

    A judge may think or not, and its server may remove the think part. None if it was never closed.
    """
    thinks = "<think>" in reply or "</think>" in reply
    return after_thinking(reply) if thinks else reply


def last_boxed(text: str) -> str | None:
    """Return the content of the last ``\\boxed{…}`` or ``\\fbox{…}``; None if there is none.

    Also None if the last box is empty or not closed. Braces inside are matched in pairs; the
    escaped braces ``\\{`` and ``\\}`` are not counted.
    """
    starts = [match.end() for match in _BOX.finditer(text)]
    if not starts:
        return None
    depth = 1
    for match in _ESCAPED_OR_BRACE.finditer(text, starts[-1]):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return text[starts[-1] : match.start()].strip() or None
    return None


def plain_integer(text: str) -> str | None:
    """Return an integer in canonical form: ``+0,001,234`` -> ``1234``; None for any other text.

    The result is text, because a model may write more digits than Python's int accepts.
    """
    match = _INTEGER.fullmatch(_bare(text))
    if match is None:
        return None
    digits = match[2].replace(",", "").lstrip("0") or "0"
    return f"-{digits}" if match[1] == "-" and digits != "0" else digits


def _bare(text: str) -> str:
    """Normalize a text for comparisons.

    Removes dollar signs, a text wrapper, LaTeX spacing and a final full stop. Replaces full-width
    characters, the Unicode minus sign, ``{,}`` and ``\\varnothing``.
    """
    text = text.translate(_ASCII).strip().strip("$").strip()
    wrapped = _WRAPPED.fullmatch(text)
    text = wrapped[1] if wrapped else text
    text = text.replace("\u2212", "-").replace("{,}", ",")
    text = _SPACING.sub("", text).replace("\\varnothing", "\\emptyset")
    return text.strip().removesuffix(".").strip()


def _compare(answer: str, ground_truth: str) -> Outcome:
    found = _by_text(answer, ground_truth)
    return equivalent(*found) if isinstance(found, tuple) else found


def _by_text(answer: str, ground_truth: str) -> Outcome | tuple[str, str]:
    """Compare two answers as text; if that does not decide, return the expressions to compare."""
    if _CHINESE_UNIT.search(ground_truth.strip()) is None:
        # Accept "204元" if 204 is expected; if the ground truth has a unit, compare both units.
        answer = _CHINESE_UNIT.sub("", answer.strip())
    found, expected = plain_integer(answer), plain_integer(ground_truth)
    if found is not None and expected is not None:
        return "correct" if found == expected else "incorrect"
    if _bare(answer) == _bare(ground_truth):
        return "correct"
    return _bare(answer), _bare(ground_truth)
