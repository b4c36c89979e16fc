"""What the judge says while the stage runs: an answer log with a line for each response.

{"problem_id": "9f0c…", "sample_index": 3, "correct": true, "text": "equal. \\\\boxed{1}",
 "asked": 1}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.judge import Judgement
from pcl_reasoner.inference.answer_log import AnswerLog, Record

_TEXT_CHARACTERS = 2000
"""What is kept of a judge's reply: its end, where its reasons and its verdict are."""


class VerdictLog(AnswerLog):
    """The judgements that are there, and those to come.

    Args:
        path: The JSONL file; what a killed run left in it is kept.
    """

    def __init__(self, path: Path) -> None:
        self.judgements: dict[Key, Judgement] = {}
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Keep a judgement at hand."""
        key = answer["problem_id"], answer["sample_index"]
        self.judgements[key] = Judgement(answer["correct"], answer["text"], answer.get("asked", 1))

    def judged(self, key: Key, judgement: Judgement) -> None:
        """Keep what the judge said about a response, and what failed until then."""
        text = judgement.text[-_TEXT_CHARACTERS:]
        said = {"correct": judgement.correct, "text": text, "asked": judgement.asked}
        self.add([{"problem_id": key[0], "sample_index": key[1], **said}])

    def info(self) -> dict[str, Any]:
        """Figures: judged responses, further questions about them, and what cannot be read."""
        found = self.judgements.values()
        return {
            "judged": len(found),
            "asked_again": sum(one.asked - 1 for one in found),
            "unreadable": sum(one.correct is None for one in found),
            **({"retried": dict(sorted(self.retried.items()))} if self.retried else {}),
        }
