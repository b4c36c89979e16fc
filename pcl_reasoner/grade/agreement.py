"""Compares the verdicts of the rule (answers.py) and the judge model on the same responses.

disagreements.jsonl has one line per response with different verdicts. A person fills in
``correct`` and names the file under the key ``human`` of the stage ``grade``:

    {"problem_id": "9f0c…", "sample_index": 3, "ground_truth": "0.5", "answer": "\\\\frac{2}{4}",
     "rule": "correct", "judge": "incorrect", "judge_text": "… \\\\boxed{0}", "end": "…",
     "correct": null}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.json_lines import json_lines
from pcl_reasoner.verifiers.answers import Verdict, plain_integer

if TYPE_CHECKING:
    from pcl_reasoner.core.schemas import Key

END_CHARACTERS = 1500


def unsure(answer: str | None, ground_truth: str) -> bool:
    """Return whether the rule's verdict is uncertain, so that a judge model should check it.

    The verdict is certain for a missing answer, for two integers, and for two equal texts. All
    other answers are parsed as LaTeX. Parsing errors can make such a verdict wrong.

    Args:
        answer: The content of the last box; None if there is none.
        ground_truth: The correct answer.
    """
    if answer is None:
        return False
    numbers = plain_integer(answer), plain_integer(ground_truth)
    return None in numbers and answer.strip() != ground_truth.strip()


@dataclass
class Agreement:
    """Counts the verdicts of rule and judge on the same responses.

    Args:
        matrix: (rule says correct, judge says correct) -> number of responses.
        disagreements: The lines of disagreements.jsonl.
    """

    matrix: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    disagreements: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, record: Mapping[str, Any], truth: str, rule: Verdict, correct: bool, text: str
    ) -> None:
        """Count a response that rule and judge graded, and keep it if their verdicts differ.

        Args:
            record: problem_id, sample_index, response.
            truth: The problem's ground truth.
            rule: The rule's verdict.
            correct: Whether the judge graded the response correct.
            text: The judge's reply.
        """
        rule_correct = rule.outcome == "correct"
        self.matrix[rule_correct, correct] += 1
        if rule_correct != correct:
            self.disagreements.append(_disagreement(record, truth, rule, correct, text))

    def kappa(self) -> float | None:
        """Return Cohen's kappa: the agreement of rule and judge beyond agreement by chance.

        It is (o − e) / (1 − e). o is the share of responses with equal verdicts. e is the share
        expected by chance, r·j + (1 − r)(1 − j). The rule grades a share r as correct, the judge
        a share j. None if no response was graded by both, or if e = 1 (all verdicts are equal).
        """
        total = self.matrix.total()
        if not total:
            return None
        agreed = (self.matrix[True, True] + self.matrix[False, False]) / total
        rule = (self.matrix[True, True] + self.matrix[True, False]) / total
        judge = (self.matrix[True, True] + self.matrix[False, True]) / total
        chance = rule * judge + (1 - rule) * (1 - judge)
        return None if chance == 1 else (agreed - chance) / (1 - chance)

    def info(self) -> dict[str, Any]:
        """Return the number of responses, kappa and the confusion matrix, for the manifest."""
        names = {True: "correct", False: "not_correct"}
        matrix = {
            f"rule_{names[rule]}_judge_{names[judge]}": self.matrix[rule, judge]
            for rule in (True, False)
            for judge in (True, False)
        }
        return {"both": self.matrix.total(), "kappa": self.kappa(), **matrix}


def _disagreement(
    record: Mapping[str, Any], truth: str, rule: Verdict, correct: bool, text: str
) -> dict[str, Any]:
    """Return a line of disagreements.jsonl; the arguments are those of Agreement.add."""
    return {
        "problem_id": record["problem_id"],
        "sample_index": record["sample_index"],
        "ground_truth": truth,
        "answer": rule.answer,
        "rule": rule.outcome,
        "judge": "correct" if correct else "incorrect",
        "judge_text": text,
        "end": (record["response"] or "")[-END_CHARACTERS:],
        "correct": None,
    }


def read_human(path: Path) -> dict[Key, bool]:
    """Read a file of human verdicts as (problem_id, sample_index) -> correct or not.

    Lines with ``correct`` null are skipped.

    Raises:
        InputError: A line is malformed, or contradicts an earlier line about the same response.
    """
    found: dict[Key, bool] = {}
    for number, value in json_lines(path, kind=InputError):
        where = f"{path.name}, line {number}"
        key, correct = _human_verdict(value, where)
        if correct is not None and found.setdefault(key, correct) != correct:
            raise InputError(f"{where}: {key[0]}/{key[1]} has another verdict on an earlier line.")
    return found


def _human_verdict(value: Any, where: str) -> tuple[Key, bool | None]:
    """Return a line's response key and human verdict; the verdict is None if not filled in."""
    try:
        key, correct = (value["problem_id"], value["sample_index"]), value["correct"]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{where}: expected problem_id, sample_index and correct ({error!r}). Use the "
            "file disagreements.jsonl and fill in correct with true or false."
        ) from error
    if correct is not None and not isinstance(correct, bool):
        raise InputError(f"{where}: correct must be true, false or null, got {correct!r}.")
    return key, correct
