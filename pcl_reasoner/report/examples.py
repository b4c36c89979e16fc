"""Draws a few problems, with their responses and verdicts, for the page.

A sample response of a problem::

    {"sample_index": 3, "response": "<think>12-3=9 …", "verdict": "incorrect", "reward": 0.0,
     "answer": "9", "selected": True}
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.report.records import read_rows

RESPONSES_SHOWN = 8
"""Maximum responses per problem; more would make the page too long."""
HEAD, TAIL = 1200, 600
"""Characters shown of a long response: at the beginning, and at the end, with the answer."""


def cut(text: str | None) -> dict[str, Any]:
    """Return a text's head, its tail and the number of characters left out between them."""
    if text is None or len(text) <= HEAD + TAIL:
        return {"response": text, "tail": "", "left_out": 0}
    return {"response": text[:HEAD], "tail": text[-TAIL:], "left_out": len(text) - HEAD - TAIL}


def read_examples(folders: Mapping[str, Path], count: int, seed: int) -> list[dict[str, Any]]:
    """Draw graded problems at random; return them with their responses and verdicts.

    Args:
        folders: Stage type -> folder. Without the stage ``select``, ``selected`` is None.
        count: Number of problems.
        seed: Seed for drawing them.

    Returns:
        For each problem: problem_id (16 hex digits), problem (its text; empty if the problems could
        not be read), ground_truth as in the data, and responses. A response has sample_index,
        response, verdict, reward, answer, selected; a long one is cut in the middle.
    """
    graded = read_rows(folders.get("grade"), "verdicts.parquet", ["problem_id"])
    ids = sorted({row["problem_id"] for row in graded})
    drawn = random.Random(seed).sample(ids, min(count, len(ids)))

    def rows(stage: str, path: str, *columns: str) -> list[dict[str, Any]]:
        return read_rows(folders.get(stage), path, ["problem_id", *columns], drawn)

    texts = rows("sample", "responses", "sample_index", "response", "n_tokens")
    text_of = {_key(row): row for row in texts}
    chosen = {_key(row) for row in rows("select", "responses.parquet", "sample_index")}
    problems = rows("contamination", "clean.parquet", "problem", "ground_truth")
    problem_of = {row["problem_id"]: row for row in problems}
    responses: dict[str, list[dict[str, Any]]] = {problem_id: [] for problem_id in drawn}
    verdicts = rows("grade", "verdicts.parquet", "sample_index", "verdict", "reward", "answer")
    for row in sorted(verdicts, key=_key):
        text = text_of.get(_key(row), {})
        selected = _key(row) in chosen if "select" in folders else None
        response = {**text, **row, "selected": selected, **cut(text.get("response"))}
        responses[row["problem_id"]].append(response)
    return [
        {
            "problem_id": problem_id,
            "problem": str(problem_of.get(problem_id, {}).get("problem") or ""),
            "ground_truth": str(problem_of.get(problem_id, {}).get("ground_truth") or ""),
            "responses": found[:RESPONSES_SHOWN],
        }
        for problem_id, found in responses.items()
    ]


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["problem_id"], row["sample_index"]
