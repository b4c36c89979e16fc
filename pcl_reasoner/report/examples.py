"""Joins a few problems with their responses and verdicts.

A sample response of a problem::

    {"sample_index": 3, "response": "<think>12-3=9 …", "verdict": "incorrect", "reward": 0.0,
     "answer": "9", "selected": True}
"""

from collections.abc import Mapping, Sequence
from typing import Any

HEAD, TAIL = 1200, 600
"""Characters shown of a long response: of its beginning, and of its end, where the answer is."""


def cut(text: str | None) -> dict[str, Any]:
    """The head and the tail of a text, and the number of characters between them."""
    if text is None:
        return {"response": None, "tail": "", "left_out": 0}
    if len(text) <= HEAD + TAIL:
        return {"response": text, "tail": "", "left_out": 0}
    return {"response": text[:HEAD], "tail": text[-TAIL:], "left_out": len(text) - HEAD - TAIL}


def join_examples(
    drawn: Sequence[str],
    graded: Sequence[Mapping[str, Any]],
    texts: Sequence[Mapping[str, Any]],
    selected: Sequence[Mapping[str, Any]] | None,
    problems: Sequence[Mapping[str, Any]],
    responses_shown: int,
) -> list[dict[str, Any]]:
    """Join the rows that several tables have for the drawn problems.

    Args:
        drawn: Problem ids, in the order in which they are shown.
        graded: Rows of verdicts.
        texts: Rows of responses.
        selected: Keys of the responses that training may use; None: there was no selection.
        problems: Rows of problems.
        responses_shown: Most responses per problem.

    Returns:
        For each problem: problem_id (16 hex digits), problem (its text; empty if the problems could
        not be read), ground_truth as in the data, and responses. A response has sample_index,
        response, verdict, reward, answer, selected; a long one is cut in the middle.
    """
    text_of = {(row["problem_id"], row["sample_index"]): row for row in texts}
    chosen = {(row["problem_id"], row["sample_index"]) for row in selected or []}
    problem_of = {row["problem_id"]: row for row in problems}

    def response_of(row: Mapping[str, Any]) -> dict[str, Any]:
        key = (row["problem_id"], row["sample_index"])
        text = text_of.get(key, {})
        use = None if selected is None else key in chosen
        return {**text, **row, "selected": use, **cut(text.get("response"))}

    examples = []
    for problem_id in drawn:
        rows = [row for row in graded if row["problem_id"] == problem_id]
        rows.sort(key=lambda row: int(row["sample_index"]))
        problem = problem_of.get(problem_id, {})
        examples.append(
            {
                "problem_id": problem_id,
                "problem": str(problem.get("problem") or ""),
                "ground_truth": str(problem.get("ground_truth") or ""),
                "responses": [response_of(row) for row in rows[:responses_shown]],
            }
        )
    return examples
