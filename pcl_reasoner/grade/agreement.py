"""Compare rule and judge where both grade: how often they agree, and which responses they dispute.

disagreements.jsonl has one line per response. A person fills in ``correct``, and the file is then
given back as ``human``:

    {"problem_id": "9f0c…", "sample_index": 3, "ground_truth": "0.5", "answer": "\\\\frac{2}{4}",
     "rule": "correct", "judge": "incorrect", "judge_text": "… \\\\boxed{0}", "end": "…",
     "correct": null}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.grade.answers import Verdict, plain_integer

if TYPE_CHECKING:
    from pcl_reasoner.core.schemas import Key

END_CHARACTERS = 1500


def unsure(answer: str | None, ground_truth: str) -> bool:
    """Whether a judge should check the rule's verdict.

    The rule is sure about a missing answer, about two integers, and about two equal texts. In all
    other cases it depends on parsing LaTeX, which sometimes fails, in either direction.

    Args:
        answer: The content of the last box; None where there is none.
        ground_truth: The correct answer.
    """
    if answer is None:
        return False
    numbers = plain_integer(answer), plain_integer(ground_truth)
    return None in numbers and answer.strip() != ground_truth.strip()


@dataclass
class Agreement:
    """Verdicts of rule and judge on the same responses.

    Args:
        matrix: (rule says correct, judge says correct) -> number of responses.
        disagreements: The lines of disagreements.jsonl.
    """

    matrix: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    disagreements: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, record: Mapping[str, Any], truth: str, rule: Verdict, correct: bool, text: str
    ) -> None:
        """Count one response.

        Args:
            record: problem_id, sample_index, response.
            truth: Its ground truth.
            rule: The rule's verdict.
            correct: The judge's verdict.
            text: The judge's reply.
        """
        rule_correct = rule.outcome == "correct"
        self.matrix[rule_correct, correct] += 1
        if rule_correct == correct:
            return
        self.disagreements.append(
            {
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
        )

    def kappa(self) -> float | None:
        """Cohen's kappa: agreement beyond what both shares of correct would give by chance.

        (o − e) / (1 − e): o is the share of responses on which both agree; e is the sum, over both
        verdicts, of the product of the rule's and the judge's shares. None where no response was
        graded by both, or where both give the same verdict to every response.
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
        """For the manifest: the confusion matrix and kappa."""
        names = {True: "correct", False: "not_correct"}
        matrix = {
            f"rule_{names[rule]}_judge_{names[judge]}": self.matrix[rule, judge]
            for rule in (True, False)
            for judge in (True, False)
        }
        return {"both": self.matrix.total(), "kappa": self.kappa(), **matrix}

    def write(self, path: Path) -> None:
        """Write disagreements.jsonl."""
        lines = (json.dumps(one, ensure_ascii=False) + "\n" for one in self.disagreements)
        path.write_text("".join(lines), encoding="utf-8")


def read_human(path: Path) -> dict[Key, bool]:
    """Read human verdicts: response -> correct or not; lines with ``correct`` null are skipped.

    Raises:
        InputError: A line is malformed, or contradicts an earlier line about the same response.
    """
    found: dict[Key, bool] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        try:
            value = json.loads(line)
            key, correct = (value["problem_id"], value["sample_index"]), value["correct"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{where}: expected problem_id, sample_index and correct ({error!r}). Use the "
                "file disagreements.jsonl and fill in correct with true or false."
            ) from error
        if correct is None:
            continue
        if not isinstance(correct, bool):
            raise InputError(f"{where}: correct must be true, false or null, got {correct!r}.")
        if found.setdefault(key, correct) != correct:
            raise InputError(f"{where}: {key[0]}/{key[1]} has another verdict on an earlier line.")
    return found
