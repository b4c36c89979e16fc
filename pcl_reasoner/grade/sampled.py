"""The sample of responses that the rule grades as well, to find out whether the judge is right.

The judge is asked about these first. When all have a verdict, they are compared (`Compared`), so a
judge that is wrong is found after a few hundred questions, not after all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.judge import Judgement, JudgeQuestion, question_about
from pcl_reasoner.grade.reading import Responses, truth_of
from pcl_reasoner.inference.response_log import FAILED
from pcl_reasoner.verifiers.answers import Verdict, grade_by_rule, prepare
from pcl_reasoner.verifiers.compared import Compared

if TYPE_CHECKING:
    from pcl_reasoner.core.schemas import Key

SAMPLED = 400
"""Most responses in the sample: 320 equal verdicts of 400 have an interval of 0.76 to 0.84."""


@dataclass(frozen=True)
class Ruled:
    """A response of the sample: its question, its ground truth, and the rule's verdict."""

    question: JudgeQuestion
    truth: str
    verdict: Verdict


@dataclass
class Sample:
    """Responses that rule and judge grade.

    Args:
        ruled: Those that have an answer.
        no_answer: Number of the others, which the judge is not asked about.
        checked: Whether they were compared, and the judge was accepted.
    """

    ruled: dict[Key, Ruled] = field(default_factory=dict)
    no_answer: int = 0
    checked: bool = False

    def compared(self, judgements: Mapping[Key, Judgement]) -> Compared:
        """Compare the verdicts of rule and judge.

        Args:
            judgements: The judge's verdicts; must have all responses of the sample.
        """
        found = Compared()
        found.left_out["no_answer"] += self.no_answer
        for key, one in self.ruled.items():
            correct = judgements[key].correct
            found.add(f"{key[0]}/{key[1]}", one.truth, one.verdict, correct)
        return found

    def check(self, judgements: Mapping[Key, Judgement], least: float, log: Path) -> None:
        """Compare once, as soon as every response of the sample has a verdict.

        Args:
            judgements: The judge's verdicts so far.
            least: ``least_agreement`` of the stage.
            log: The file with the judge's replies, for the error.

        Raises:
            StageError: Rule and judge agree too seldom.
        """
        if self.checked or any(key not in judgements for key in self.ruled):
            return
        if fault := self.compared(judgements).fault(least):
            raise StageError(
                f"the judge does not grade as the rule does: {fault} Read the judge's replies in "
                f"{log}, and check judge_model, its server and the prompt. If the server was at "
                "fault, delete this file, so that everything is asked again. To continue with this "
                "judge, set least_agreement: 0; audit.html then shows its verdicts."
            )
        self.checked = True


def draw(config: GradeConfig, prompt: str, responses: Responses) -> Sample:
    """Take at most SAMPLED math responses, evenly spaced, and grade them by rule.

    Empty with method ``cascade``: there the judge is asked only where the rule may be wrong.

    Args:
        config: The settings of the stage ``grade``.
        prompt: The judge's prompt, not filled.
        responses: The responses, with their ground truths.
    """
    sample = Sample()
    if config.method == "cascade" or config.kinds.get("math") != "answer":
        return sample
    total = responses.count_by(str)["math"]
    size = min(SAMPLED, total)
    for records in _spaced(responses, size, total):
        truths = [truth_of(one, responses.truths) for one in records]
        given = [
            (one["response"] or "", truth, one["finish_reason"])
            for one, truth in zip(records, truths, strict=True)
        ]
        prepare(given)
        for record, truth, one in zip(records, truths, given, strict=True):
            question = question_about(config, prompt, record, truth)
            if question is None:
                sample.no_answer += 1
            else:
                sample.ruled[question[0]] = Ruled(question, truth, grade_by_rule(*one))
    return sample


def _spaced(responses: Responses, size: int, total: int) -> Iterator[list[dict[str, Any]]]:
    """Yield ``size`` of the ``total`` math responses that came, in lists, evenly spaced."""
    seen = 0
    for batch in responses.with_questions():
        taken = []
        for record, question in batch:
            if question.kind == "math" and record["finish_reason"] not in FAILED:
                if seen * size % total < size:
                    taken.append(record)
                seen += 1
        yield taken
