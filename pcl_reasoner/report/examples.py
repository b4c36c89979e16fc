"""Draws a few problems of each kind, with their responses and verdicts, for the page.

A sample response of a problem::

    {"sample_index": 3, "response": "<think>12-3=9 …", "verdict": "incorrect", "reward": 0.0,
     "answer": "9", "selected": True, "why": {}}

``why`` says more about a verdict, e.g. of a program::

    {"passed": 2, "total": 5, "test": 3, "reason": "wrong value", "got": "7",
     "case": "{\\"args\\": [3], \\"out\\": 6}"}
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.page_parts.records import read_rows
from pcl_reasoner.page_parts.texts import cut, why

RESPONSES_SHOWN = 8
"""Maximum responses per problem; more would make the page too long."""


def read_examples(folders: Mapping[str, Path], count: int, seed: int) -> list[dict[str, Any]]:
    """Draw graded problems at random; return them with their responses and verdicts.

    Args:
        folders: ``grade``, ``responses``, ``problems`` and ``select`` -> the folder of the stage.
            Without ``select``, ``selected`` is None.
        count: Number of problems of each kind.
        seed: Seed for drawing them.

    Returns:
        For each problem: problem_id (16 hex digits), kind, problem (its text; empty if the problems
        could not be read), ground_truth as in the data, and responses. A response has
        sample_index, response, verdict, reward, answer, selected, why; a long one is cut in the
        middle.
    """
    problem_of = _draw(folders, count, seed)
    drawn = list(problem_of)

    def rows(stage: str, path: str, *columns: str) -> list[dict[str, Any]]:
        return read_rows(folders.get(stage), path, ["problem_id", *columns], drawn)

    texts = rows("responses", "responses", "sample_index", "response", "n_tokens")
    text_of = {_key(row): row for row in texts}
    chosen = {_key(row) for row in rows("select", "responses.parquet", "sample_index")}
    responses: dict[str, list[dict[str, Any]]] = {problem_id: [] for problem_id in drawn}
    columns = ("sample_index", "verdict", "reward", "answer", "score", "detail")
    for row in sorted(rows("grade", "verdicts.parquet", *columns), key=_key):
        text = text_of.get(_key(row), {})
        selected = _key(row) in chosen if "select" in folders else None
        reasons = why(row.pop("detail", None), problem_of[row["problem_id"]].get("checks"))
        response = {**text, **row, "selected": selected, "why": reasons}
        responses[row["problem_id"]].append({**response, **cut(text.get("response"))})
    return [
        {
            "problem_id": problem_id,
            "kind": problem_of[problem_id].get("kind") or "math",
            "problem": str(problem_of[problem_id].get("problem") or ""),
            "ground_truth": str(problem_of[problem_id].get("ground_truth") or ""),
            "responses": found[:RESPONSES_SHOWN],
        }
        for problem_id, found in responses.items()
    ]


def _draw(folders: Mapping[str, Path], count: int, seed: int) -> dict[str, dict[str, Any]]:
    """Draw graded problems of each kind; return problem_id -> their columns, kind by kind."""
    graded = read_rows(folders.get("grade"), "verdicts.parquet", ["problem_id"])
    ids = sorted({row["problem_id"] for row in graded})
    kind_of = {row["problem_id"]: row.get("kind") for row in _problems(folders, ids, "kind")}
    drawn: list[str] = []
    for kind in KINDS:
        of_kind = [one for one in ids if (kind_of.get(one) or "math") == kind]
        drawn += random.Random(seed).sample(of_kind, min(count, len(of_kind)))
    rows = _problems(folders, drawn, "problem", "ground_truth", "kind", "checks")
    found = {row["problem_id"]: row for row in rows}
    return {one: found.get(one, {}) for one in drawn}


def _problems(folders: Mapping[str, Path], ids: list[str], *columns: str) -> list[dict[str, Any]]:
    names = ["problem_id", *columns]
    found = read_rows(folders.get("problems"), "clean.parquet", names, ids)
    return found or read_rows(folders.get("problems"), "problems.parquet", names, ids)


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["problem_id"], row["sample_index"]
