"""Reads the artifact of a stage ``rl`` for the report.

    {"rl": {"rounds": [{"round": 0, "responses": 128, "mean_reward": 0.56,
                        "kinds": {"math": {"responses": 96, "reward": 53, "correct": 53}}, …}],
            "tests": {"rounds": [{"round": 0, "outcomes": {"correct": 19, "incorrect": 13}}, …],
                      "failures": {"wrong": 12, "exception": 1}},
            "asked": {"math": 640, "code": 212}}}

The rounds are the rows of rounds.parquet. The tests are those of the responses to problems of code.
``asked`` is the number of problems that were asked at least once, by kind.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.page_parts.records import read_rows

ROUNDS, RESPONSES, VISITS = "rounds.parquet", "responses", "visits.parquet"
COUNTED = (
    *("responses", "failed", "groups_left_out", "overlong", "stopped", "no_advantage"),
    *("segments", "trained", "tokens", "trained_tokens"),
)
"""Columns of rounds.parquet that count."""
MEASURED = ("mean_reward", "loss", "mismatch_abs", "mismatch_max")
"""Its other columns that the report shows; null where they were not measured."""


def read_rl(folder: Path) -> dict[str, Any]:
    """Return ``rl``, as above; empty for another stage, and for one without a round.

    Args:
        folder: The folder of a finished stage.
    """
    columns = ["round", "kinds", *COUNTED, *MEASURED]
    rounds = read_rows(folder, ROUNDS, columns)
    if not rounds:
        return {}
    rounds = [{**row, "kinds": json.loads(row["kinds"])} for row in rounds]
    return {"rl": {"rounds": rounds, "tests": _tests(folder), "asked": _asked(folder)}}


def _tests(folder: Path) -> dict[str, Any]:
    """Count the verdicts on programs by round, and the reasons why tests failed."""
    from pyarrow import dataset

    table = dataset.dataset(folder / RESPONSES, format="parquet")
    columns = ["round", "verdict", "detail"]
    outcomes: dict[int, Counter[str]] = {}
    failures = Counter[str]()
    is_code = dataset.field("kind") == "code"
    for batch in table.to_batches(columns=columns, filter=is_code):
        for row in batch.to_pylist():
            outcomes.setdefault(row["round"], Counter())[row["verdict"]] += 1
            detail = json.loads(row["detail"] or "{}")
            if "reason" in detail:
                failures[detail["reason"]] += 1
    rounds = [
        {"round": number, "outcomes": dict(sorted(counts.items()))}
        for number, counts in sorted(outcomes.items())
    ]
    return {"rounds": rounds, "failures": dict(failures.most_common())}


def _asked(folder: Path) -> dict[str, int]:
    """Count the problems that were asked at least once, by kind."""
    kind_of = {
        row["problem_id"]: row["kind"] for row in read_rows(folder, VISITS, ["problem_id", "kind"])
    }
    counts = Counter(kind_of.values())
    return {kind: counts[kind] for kind in KINDS if counts[kind]}
