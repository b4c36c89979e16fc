"""Stage ``solved``: removes the problems that a policy always solved during on-policy training.

    visits.parquet   problem_id 9f0c…, kind math, round 3, n 16, all_correct true, overlong 0, …
                     problem_id 9f0c…, kind math, round 14, n 16, all_correct true, overlong 0, …

A visit is a round that asked a problem. Both visits of this problem were solved, so it is removed:
its responses would all have the same reward, and no advantage. clean.parquet has the columns of the
problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.curate.parts import problems_file
from pcl_reasoner.revise.problems import (
    CLEAN,
    Problem,
    column_names,
    read_problems,
    write_problems,
)

VISITS = "visits.parquet"
"""File of an ``rl`` artifact with one row per visit."""


class SolvedConfig(StageConfig):
    """Which problems are removed."""

    kinds: list[Kind] = Field(["math", "code"], min_length=1)
    """Kinds of problems that are filtered; the others pass."""
    min_visits: int = Field(1, ge=1)
    """A problem with fewer visits is kept, even if all of them were solved."""
    not_seen: Literal["keep", "drop"] = "keep"
    """What happens to problems that no round asked; ``drop`` counts them as not_seen."""


@dataclass
class Visits:
    """How often a problem was visited, and in how many of these visits it was solved."""

    count: int = 0
    solved: int = 0


def solved(
    config: SolvedConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Remove the problems of some kinds whose every visit was solved.

    A visit is solved if all responses were correct and none was over-long. A visit without any
    answered response says nothing about the policy, and is left out.

    Args:
        config: The kinds, the least number of visits, and what happens to problems not seen.
        inputs: ``problems``, and ``rounds``: the artifact of ``rl``.
        output: Gets clean.parquet.
        context: Receives a warning if none of the problems to filter was visited, or only problems
            of other kinds are left.

    Raises:
        StageError: No visit is of one of the problems, or no problem is left.

    Source: AM-Thinking-v1 (arXiv 2505.08311): after stage 1, the mathematics and code problems
    that the policy always answered correctly are removed. It does not say what happens to problems
    that were not visited, or that were visited once.
    """
    source = problems_file(inputs["problems"])
    problems = read_problems(source)
    file = inputs["rounds"] / VISITS
    if not file.is_file():
        raise StageError(f"{file.parent}: no {VISITS}. Let the input rounds come from a stage rl.")
    visits, unanswered = read_visits(file)
    reasons = {
        one.problem_id: drop_reason(visits.get(one.problem_id, Visits()), config)
        for one in problems
        if one.kind in config.kinds
    }
    dropped = Counter(reason for reason in reasons.values() if reason)
    counts = Counts(
        unit="problems",
        read=len(problems),
        kept=len(problems) - dropped.total(),
        dropped=dict(sorted(dropped.items())),
        info=_figures(problems, reasons, visits, unanswered),
    )
    _check(counts, reasons, visits, file, context)
    kept = {one.problem_id for one in problems if reasons.get(one.problem_id) is None}
    write_problems(source, output / CLEAN, {}, kept)
    return counts


def read_visits(file: Path) -> tuple[dict[str, Visits], int]:
    """Read problem_id -> its visits, and count the visits without an answered response.

    Args:
        file: visits.parquet.

    Raises:
        StageError: The file cannot be read or lacks a column, a value is missing, or a round
            visited a problem twice.
    """
    from pcl_reasoner.curate.parts import record_batches

    columns = ["problem_id", "round", "n", "all_correct", "overlong"]
    column_names(file, columns)
    found: dict[str, Visits] = {}
    seen: set[tuple[str, int]] = set()
    unanswered = 0
    for batch in record_batches(file, columns):
        for row in batch.to_pylist():
            key = _checked_key(row, seen, file)
            if row["n"] == 0:
                unanswered += 1
                continue
            visits = found.setdefault(key[0], Visits())
            visits.count += 1
            visits.solved += row["all_correct"] and row["overlong"] == 0
    return found, unanswered


def drop_reason(visits: Visits, config: SolvedConfig) -> str | None:
    """Return why a problem of a filtered kind is dropped; None if it is kept.

    Args:
        visits: The problem's visits.
        config: The stage's settings.
    """
    if visits.count == 0:
        return "not_seen" if config.not_seen == "drop" else None
    always = visits.solved == visits.count
    return "solved_always" if always and visits.count >= config.min_visits else None


def _checked_key(row: Mapping[str, Any], seen: set[tuple[str, int]], file: Path) -> tuple[str, int]:
    """Return a visit's problem and round; refuse missing values and a repeated visit."""
    key = (row["problem_id"], row["round"])
    if missing := [name for name, value in row.items() if value is None]:
        raise StageError(
            f"{file}: the visit of problem {key[0]} in round {key[1]} has no {', '.join(missing)}. "
            "Run the stage `rl` again."
        )
    if key in seen:
        raise StageError(
            f"{file}: two visits of problem {key[0]} in round {key[1]}, expected one. "
            "Run the stage `rl` again."
        )
    seen.add(key)
    return key


def _figures(
    problems: Sequence[Problem],
    reasons: Mapping[str, str | None],
    visits: Mapping[str, Visits],
    unanswered: int,
) -> dict[str, Any]:
    """Return the ``info`` of the stage's counts: figures per kind, and what was left out.

    ``before`` is the sum of ``removed`` and ``kept``; ``not_seen`` problems are in either.
    """
    by_kind: dict[str, dict[str, int]] = {}
    for one in problems:
        empty = {"before": 0, "removed": 0, "kept": 0, "not_seen": 0}
        figures = by_kind.setdefault(one.kind, empty)
        figures["before"] += 1
        figures["removed" if reasons.get(one.problem_id) else "kept"] += 1
        figures["not_seen"] += one.problem_id not in visits
    known = {one.problem_id for one in problems}
    others = {
        "unanswered_visits": unanswered,
        "problems_only_in_visits": len(visits.keys() - known),
    }
    counted = {name: value for name, value in others.items() if value}
    return {"kinds": dict(sorted(by_kind.items())), **counted}


def _check(
    counts: Counts,
    reasons: Mapping[str, str | None],
    visits: Mapping[str, Visits],
    file: Path,
    context: StageContext,
) -> None:
    """Refuse other problems' visits and an empty result; warn if the filter has no sense."""
    by_kind = counts.info["kinds"].values()
    if all(figures["not_seen"] == figures["before"] for figures in by_kind):
        raise StageError(
            f"{file}: its visits are of {len(visits)} problems, and none of them is among the "
            f"{counts.read} input problems (kinds: {counts.info['kinds']}). Let the input rounds "
            "come from a stage `rl` that was trained on these problems."
        )
    if counts.kept == 0:
        raise StageError(
            f"no problem is left of {counts.read} (dropped: {counts.dropped}; kinds: "
            f"{counts.info['kinds']}). The policy has nothing to learn from these problems: add "
            "harder ones, raise min_visits, or set not_seen to keep."
        )
    if reasons and not visits.keys() & reasons.keys():
        context.warn(f"none of the {len(reasons)} problems to filter was visited.")
    if reasons and all(reasons.values()):
        context.warn(f"every problem to filter was dropped: {counts.dropped}.")
