"""Log of the judge's verdicts in a running stage: an answer log with one line per response.

{"problem_id": "9f0c…", "sample_index": 3, "correct": true, "text": "equal. \\\\boxed{1}",
 "asked": 1}
"""

from pathlib import Path
from typing import Any

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.judge import Judgement
from pcl_reasoner.inference.answer_log import AnswerLog, Record

_TEXT_CHARACTERS = 2000
"""Characters kept of a judge's reply: its end, which has its reasons and its verdict."""


class VerdictLog(AnswerLog):
    """The judgements of a running stage.

    Args:
        path: The JSONL file; lines that a killed run left in it are kept.
    """

    def __init__(self, path: Path) -> None:
        self.judgements: dict[Key, Judgement] = {}
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Keep a judgement in memory."""
        key = answer["problem_id"], answer["sample_index"]
        self.judgements[key] = Judgement(answer["correct"], answer["text"], answer.get("asked", 1))

    def judged(self, key: Key, judgement: Judgement) -> None:
        """Write the judge's verdict on a response, and the failures counted since the last one."""
        text = judgement.text[-_TEXT_CHARACTERS:]
        verdict = {"correct": judgement.correct, "text": text, "asked": judgement.asked}
        self.add([{"problem_id": key[0], "sample_index": key[1], **verdict}])

    def info(self) -> dict[str, Any]:
        """Figures: judged responses, repeated questions about them, and unreadable verdicts."""
        found = self.judgements.values()
        return {
            "judged": len(found),
            "asked_again": sum(one.asked - 1 for one in found),
            "unreadable": sum(one.correct is None for one in found),
            **({"retried": dict(sorted(self.retried.items()))} if self.retried else {}),
        }
