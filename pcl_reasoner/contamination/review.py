"""A reviewer's word on what was flagged, which the check obeys.

    {"problem_id": "0f3a…", "benchmark_id": "aime-2024-I-01", "decision": "allow", "note": "…"}

The check writes every hit and near miss into ``review.jsonl`` with an empty decision. ``allow``
keeps a problem that was flagged, ``deny`` takes out one that was not; an empty one leaves the
check's own. A word on a problem that is not there is no error: it is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import InputError

ALLOW, DENY = "allow", "deny"


def read_review(path: Path) -> dict[str, str]:
    """Read decisions.

    Args:
        path: JSONL as above.

    Returns:
        problem_id -> allow or deny.

    Raises:
        InputError: A line is not as above, or a problem has two different decisions.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            problem, decision = record["problem_id"], record["decision"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}, line {number}: expected problem_id and decision as JSON, got "
                f"{line[:80]!r} ({error})."
            ) from error
        if decision not in (ALLOW, DENY, ""):
            raise InputError(
                f"{path}, line {number}: decision must be {ALLOW}, {DENY} or empty, got "
                f"{decision!r}."
            )
        if decision and found.setdefault(problem, decision) != decision:
            raise InputError(f"{path}, line {number}: {problem} is both {ALLOW}ed and denied.")
    return found


def review_lines(
    records: Iterable[Mapping[str, Any]], known: Mapping[str, str]
) -> list[dict[str, Any]]:
    """One line a problem for a reviewer to decide on, with what was decided already.

    Args:
        records: Hits and near misses.
        known: problem_id -> decision.
    """
    lines = {}
    for record in records:
        problem = record["problem_id"]
        lines[problem] = {
            "problem_id": problem,
            "benchmark_id": record["benchmark_id"],
            "rule": record["rule"],
            "problem": record["problem"],
            "decision": known.get(problem, ""),
        }
    return list(lines.values())
