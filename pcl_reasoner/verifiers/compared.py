r"""Compares a judge's verdicts with the rule's, and says whether the judge can be believed.

    p01/0   ground truth 8   answer 008   rule correct     judge correct
    p02/5   ground truth 8   answer 9     rule incorrect   judge correct
    -> n 2, rule_correct_judge_correct 1, rule_not_correct_judge_correct 1, share 0.5

A judge that always says yes agrees with the rule on as many responses as are correct, which may be
90 % of them. So it is also counted how often the judge agrees where the rule says correct, and
where it says incorrect. One of the two is then near 0, however good the policy is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pcl_reasoner.verifiers.answers import Verdict
from pcl_reasoner.verifiers.shares import wilson

LEAST_COMPARED = 10
"""Fewer compared responses do not stop a stage. The number is our choice."""
COIN = 0.5
"""The share on which a coin agrees with anyone. A judge that agrees with the rule on less than this
of the responses that the rule finds correct, or of those that it finds incorrect, stops a stage."""
ONE_SIDED = 0.99
"""If a larger share of the verdicts is the same, there is a warning. The number is our choice."""
LEAST_VERDICTS = 100
"""Fewer verdicts may all be the same by chance."""
_EXAMPLES = 3
_SHOWN_CHARACTERS = 60
_COMMAND = re.compile(r"\\(?:begin|end)\s*\{[A-Za-z*]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[^\W\d_]{3,}|[\u4e00-\u9fff]")
_SIDES = {True: "correct", False: "not_correct"}


def can_read(verdict: Verdict, truth: str) -> bool:
    """Return whether the rule could read answer and ground truth.

    It cannot read words, e.g. ``\\text{eight}`` for 8, unless both texts are equal. A comparison
    that took too long, or whose process died, has no result either.

    Args:
        verdict: The rule's verdict on a response that has an answer.
        truth: The problem's ground truth.
    """
    if verdict.outcome == "incorrect":
        texts = (verdict.answer or "", truth)
        return not any(_WORD.search(_COMMAND.sub(" ", text)) for text in texts)
    return verdict.outcome == "correct"


@dataclass
class Compared:
    """The verdicts of rule and judge on a sample of responses.

    Args:
        matrix: (rule says correct, judge says correct) -> number of responses.
        left_out: Reason -> number of responses that are not compared.
        disagreements: One sentence for each of the first few with different verdicts.
    """

    matrix: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)

    def add(self, name: str, truth: str, rule: Verdict, judge: bool | None) -> None:
        """Count a response that has an answer.

        Args:
            name: ``problem_id/sample_index``.
            truth: The problem's ground truth.
            rule: The rule's verdict.
            judge: Whether the judge finds it correct; None if no reply could be read.
        """
        if judge is None:
            self.left_out["judge_unreadable"] += 1
        elif not can_read(rule, truth):
            self.left_out["rule_unreadable"] += 1
        else:
            self.matrix[rule.outcome == "correct", judge] += 1
            if (rule.outcome == "correct") != judge and len(self.disagreements) < _EXAMPLES:
                says = "correct" if judge else "incorrect"
                answer, expected = _short(rule.answer or ""), _short(truth)
                self.disagreements.append(
                    f"{name}: rule {rule.outcome}, judge {says}, answer {answer}, ground truth "
                    f"{expected}"
                )

    def figures(self) -> dict[str, Any]:
        """Return the counts, and the share of equal verdicts with its 95 % interval."""
        total, agreed = self.matrix.total(), self._agreed(True) + self._agreed(False)
        return {
            "n": total,
            **{
                f"rule_{_SIDES[rule]}_judge_{_SIDES[judge]}": self.matrix[rule, judge]
                for rule in (True, False)
                for judge in (True, False)
            },
            "share": agreed / total if total else None,
            "interval": list(wilson(agreed, total)) if total else None,
            "left_out": dict(sorted(self.left_out.items())),
        }

    def fault(self, least: float) -> str | None:
        """Return why the judge cannot be believed, with figures and examples; None if it can.

        Args:
            least: Share of equal verdicts that the 95 % interval must reach. If it is below COIN,
                it also replaces COIN; 0 accepts every judge.
        """
        faults = list(self._faults(least))
        if not faults:
            return None
        both = "; ".join(
            f"rule {rule}, judge {judge}: {self.matrix[key]}"
            for key, rule, judge in (
                ((True, True), "correct", "correct"),
                ((False, False), "incorrect", "incorrect"),
                ((False, True), "incorrect", "correct"),
                ((True, False), "correct", "incorrect"),
            )
        )
        return f"{'; and '.join(faults)}. {both}. Examples: {'; '.join(self.disagreements)}."

    def _faults(self, least: float) -> Iterator[str]:
        total, agreed = self.matrix.total(), self._agreed(True) + self._agreed(False)
        if _below(agreed, total, least):
            yield (
                f"they agree on {agreed} of {total} responses, {_percent(agreed, total)}, expected "
                f"at least {least:.1%}"
            )
        for rule, name in ((True, "correct"), (False, "incorrect")):
            total, agreed = self.matrix[rule, True] + self.matrix[rule, False], self._agreed(rule)
            if _below(agreed, total, min(least, COIN)):
                yield (
                    f"of {total} responses that the rule finds {name}, the judge finds {agreed} "
                    f"{name}, {_percent(agreed, total)}, expected at least {min(least, COIN):.1%}"
                )

    def _agreed(self, rule: bool) -> int:
        return self.matrix[rule, rule]


def one_sided(correct: int, total: int) -> str | None:
    """Return a warning if nearly all verdicts are the same; None if they are not.

    Args:
        correct: Responses graded as correct.
        total: Responses graded as correct or incorrect.
    """
    most = max(correct, total - correct)
    if total < LEAST_VERDICTS or most <= ONE_SIDED * total:
        return None
    name = "correct" if most == correct else "incorrect"
    return (
        f"nearly all verdicts are the same: {most} of {total} responses that have an answer are "
        f"{name} ({most / total:.2%}). Read some in audit.html before you train on them."
    )


def _below(found: int, total: int, least: float) -> bool:
    """Whether even the upper end of a share's interval is too low, given enough cases."""
    return total >= LEAST_COMPARED and wilson(found, total)[1] < least


def _percent(found: int, total: int) -> str:
    return f"{found / total:.1%} (95 % interval up to {wilson(found, total)[1]:.1%})"


def _short(text: str) -> str:
    """Return the start of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"
