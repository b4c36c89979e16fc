"""Shows the stage ``revise``: its outcomes, and some problems with the votes on their answers.

A sample example::

    {"problem_id": "9f0c…", "outcome": "revised", "original": "41", "truth": "42",
     "votes": {"42": 6, "41": 1}, "without_answer": 1, "opinion": "42.0"}

The texts of the problems are not shown here; the stage's own page audit.html has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcl_reasoner.core.json_lines import json_lines
from pcl_reasoner.page_parts.records import CHANGED, StageRecord
from pcl_reasoner.revise.audit import MEANINGS

FILE = "revisions.jsonl"
EXAMPLES = {"revised": 6}
"""Outcome -> number of examples."""
OTHER_EXAMPLES = 3
_NO_EXAMPLES = ("agreed",)
_CHARACTERS = 120
"""Characters shown of an answer."""


def read_revisions(folder: Path) -> dict[str, Any]:
    """Read the examples of a stage ``revise``, and why there was no majority.

    Args:
        folder: The stage's folder.

    Returns:
        ``revisions`` with ``examples`` and ``no_majority``; empty for any other stage.

    Raises:
        StageError: A line is not JSON.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    shown, why = Counter[str](), Counter[str]()
    examples = []
    for _, one in json_lines(path, CHANGED):
        outcome = str(one["outcome"])
        if outcome == "no_majority":
            why[_no_majority(one)] += 1
        shown[outcome] += 1
        limit = EXAMPLES.get(outcome, OTHER_EXAMPLES)
        if outcome not in _NO_EXAMPLES and shown[outcome] <= limit:
            examples.append(_example(one))
    order = list(MEANINGS)
    examples.sort(key=lambda one: order.index(one["outcome"]))
    return {"revisions": {"examples": examples, "no_majority": dict(sorted(why.items()))}}


def _no_majority(line: Mapping[str, Any]) -> str:
    """Return why a problem has no majority."""
    largest, second = sorted([*line["votes"].values(), 0, 0], reverse=True)[:2]
    if not largest:
        return "without an answer"
    return "tied" if largest == second else "with too few answers"


def _example(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of a line; the ground truth only changes if it was revised."""
    answered = sum(line["votes"].values()) + line["not_compared"]
    truth = line["opinion"] if line["outcome"] == "revised" else line["original"]
    ranked = sorted(line["votes"].items(), key=lambda vote: -vote[1])
    return {
        "problem_id": line["problem_id"],
        "outcome": line["outcome"],
        "original": _cut(line["original"]),
        "truth": _cut(truth),
        "votes": [[_cut(answer), number] for answer, number in ranked],
        "without_answer": line["responses"] - answered,
        "opinion": None if line["opinion"] is None else _cut(line["opinion"]),
    }


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "…"


def revisions(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return what the page shows of every stage ``revise`` that has run."""
    return [_revision(one) for one in records if one.type == "revise" and one.manifest]


def _revision(record: StageRecord) -> dict[str, Any]:
    info = record.counts.get("info") or {}
    outcomes = info.get("outcomes") or {}
    read = record.files.get("revisions") or {}
    return {
        "key": record.key,
        "folder": record.folder,
        "checked": info.get("checked", 0),
        "not_checked": dict(info.get("not_checked") or {}),
        "outcomes": [
            {"name": name, "count": outcomes.get(name, 0), "meaning": meaning}
            for name, meaning in MEANINGS.items()
        ],
        "no_majority": dict(read.get("no_majority") or {}),
        "opinions": dict(info.get("opinions") or {}),
        "without_responses": info.get("without_responses", 0),
        "examples": list(read.get("examples") or []),
    }
