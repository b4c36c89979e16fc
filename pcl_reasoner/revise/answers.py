"""Read the teacher's answers from the artifact of a stage ``sample``.

responses   (9f0c…, 0, "…</think>\\\\boxed{008}", stop), (9f0c…, 1, "<think>…", length)
answers     {"9f0c…": ["008", None]}
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pcl_reasoner.verifiers.answers import after_thinking, last_boxed, why_no_answer

_COLUMNS = ["problem_id", "sample_index", "response", "finish_reason"]


@dataclass(frozen=True)
class Answers:
    """The answers to the wanted problems.

    Args:
        by_problem: problem_id -> answers in sample order; None for a response without an answer.
        others: Number of responses to other problems, which are ignored.
    """

    by_problem: dict[str, list[str | None]]
    others: int


def read_answers(folder: Path, wanted: Collection[str]) -> Answers:
    """Read the answer of every response to the wanted problems, as the stage ``grade`` reads it.

    Args:
        folder: Folder with responses/*.parquet.
        wanted: The problem_ids.

    Raises:
        StageError: There are no responses, or a file cannot be read or lacks a column.
    """
    from pcl_reasoner.curate.parts import parts_of, record_batches

    found: dict[str, list[tuple[int, str | None]]] = {}
    others = 0
    for part in parts_of(folder / "responses", _COLUMNS):
        for batch in record_batches(part, _COLUMNS):
            for row in batch.to_pylist():
                if row["problem_id"] not in wanted:
                    others += 1
                    continue
                answer = answer_of(row["response"] or "", row["finish_reason"])
                found.setdefault(row["problem_id"], []).append((row["sample_index"], answer))
    ordered = {
        name: [answer for _, answer in sorted(pairs, key=lambda pair: pair[0])]
        for name, pairs in found.items()
    }
    return Answers(ordered, others)


def answer_of(response: str, finish_reason: str) -> str | None:
    """Return the answer in a response's last box; None if the response failed or has no answer."""
    answered = after_thinking(response)
    if why_no_answer(answered, finish_reason) is not None:
        return None
    return last_boxed(answered or "")
