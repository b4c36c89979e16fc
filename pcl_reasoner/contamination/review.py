"""A reviewer's decisions on hits and near misses, which the check applies.

    {"problem_id": "0f3a…", "benchmark_id": "aime-2024-I-01", "decision": "allow", "note": "…"}

The check writes every hit and near miss to ``review.jsonl``, with an empty decision or the one
already made. ``allow`` keeps a problem that was flagged, ``deny`` drops one that was not flagged,
and an empty decision changes nothing. A decision on a problem that is not in the input is counted;
it is not an error.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.json_lines import json_lines

ALLOW, DENY = "allow", "deny"


def read_review(path: Path) -> dict[str, str]:
    """Read the reviewer's decisions.

    Args:
        path: A JSONL file with lines like the sample above.

    Returns:
        problem_id -> allow or deny.

    Raises:
        InputError: A line is malformed, or a problem has two different decisions.
    """
    found: dict[str, str] = {}
    for number, record in json_lines(path, kind=InputError):
        try:
            problem, decision = str(record["problem_id"]), record["decision"]
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{path}, line {number}: expected problem_id and decision as JSON, got "
                f"{str(record)[:80]!r} ({error}). Correct the line."
            ) from error
        if decision not in (ALLOW, DENY, ""):
            raise InputError(
                f"{path}, line {number}: decision must be {ALLOW}, {DENY} or empty, got "
                f"{decision!r}. Correct the line."
            )
        if decision and found.setdefault(problem, decision) != decision:
            raise InputError(
                f"{path}, line {number}: {problem} is both {ALLOW}ed and denied. Keep one decision."
            )
    return found


def review_lines(
    records: Iterable[Mapping[str, Any]], decisions: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Make one line per problem for the reviewer, with the decision if one was already made.

    Args:
        records: Hits and near misses.
        decisions: problem_id -> decision already made.
    """
    columns = ("problem_id", "benchmark_id", "rule", "problem")
    lines = {record["problem_id"]: {key: record[key] for key in columns} for record in records}
    return [{**line, "decision": decisions.get(key, "")} for key, line in lines.items()]
