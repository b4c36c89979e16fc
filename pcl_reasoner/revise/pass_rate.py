"""Stage ``pass_rate``: keeps the problems that a policy solves sometimes, but not always.

    verdicts on a problem   correct, incorrect, timeout, correct     rewards 1, 0, 0, 1
    pass_rate               2/3: the third request failed, and says nothing about the policy

clean.parquet has the columns of the problems and ``pass_rate`` (float32). It replaces a column of
that name, which is the pass rate of the source's own model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

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

FAILED = ("error", "timeout")
"""Verdicts on requests and gradings that failed."""
EDGES = [tenth / 10 for tenth in range(11)]
"""Edges of the histogram's bins; a bin contains its lower edge."""


class PassRateConfig(StageConfig):
    """Which pass rates are kept; both limits are excluded."""

    above: float = Field(0.0, ge=0, le=1)
    """Problems with this pass rate or a smaller one are dropped as never_solved."""
    below: float = Field(1.0, ge=0, le=1)
    """Problems with this pass rate or a larger one are dropped as always_solved."""
    kinds: list[Kind] = Field(["math", "code"], min_length=1)
    """Kinds of problems that are filtered; the others pass, with a pass_rate of null."""

    @model_validator(mode="after")
    def _some_rate_is_kept(self) -> PassRateConfig:
        if self.above >= self.below:
            raise ValueError(f"above must be less than below, got {self.above} and {self.below}")
        return self


def pass_rate(
    config: PassRateConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Keep the problems whose pass rate is strictly between two limits.

    The pass rate is the mean reward of a problem's responses. Responses whose verdict is ``error``
    or ``timeout`` are left out: a request or a grading failed, which is not the policy's fault. A
    problem without any other verdict is dropped as no_verdict.

    Args:
        config: The limits, and the kinds of problems.
        inputs: ``problems``, and ``verdicts``: the artifact of ``grade``.
        output: Gets clean.parquet.
        context: Receives a warning if only problems of other kinds are left.

    Raises:
        StageError: No problem to filter has a verdict, or no problem is left.

    Source: AM-Thinking-v1 (arXiv 2505.08311): mathematics and code problems with pass rates
    strictly between 0 and 1. It does not say what failed requests count as.
    """
    source = problems_file(inputs["problems"])
    problems = read_problems(source)
    filtered = {one.problem_id: one.kind for one in problems if one.kind in config.kinds}
    rates, failed = read_rates(inputs["verdicts"] / "verdicts.parquet")
    reasons = {name: drop_reason(rates.get(name), config.above, config.below) for name in filtered}
    dropped = Counter(reason for reason in reasons.values() if reason)
    counts = Counts(
        unit="problems",
        read=len(problems),
        kept=len(problems) - dropped.total(),
        dropped=dict(sorted(dropped.items())),
        info=_figures(problems, filtered, rates, failed),
    )
    _check(counts, len(filtered), context)
    column = {name: rates[name] for name in filtered if name in rates}
    kept = {one.problem_id for one in problems if reasons.get(one.problem_id) is None}
    write_problems(source, output / CLEAN, {"pass_rate": ("float32", column)}, kept)
    return counts


def read_rates(file: Path) -> tuple[dict[str, float], int]:
    """Read problem_id -> pass rate from verdicts, and count the failed ones, which are left out.

    Args:
        file: verdicts.parquet; a reward is in [0, 1].

    Raises:
        StageError: The file lacks a column, a reward is missing or out of range, or a response has
            two verdicts.
    """
    from pcl_reasoner.curate.parts import record_batches
    from pcl_reasoner.grade.rewards import pass_rates, read_rewards

    columns = ["problem_id", "sample_index", "verdict"]
    column_names(file, [*columns, "reward"])
    rewards = read_rewards(file)
    failed = {
        (row["problem_id"], row["sample_index"])
        for batch in record_batches(file, columns)
        for row in batch.to_pylist()
        if row["verdict"] in FAILED
    }
    counted = {key: reward for key, reward in rewards.items() if key not in failed}
    return pass_rates(counted), len(failed)


def drop_reason(rate: float | None, above: float, below: float) -> str | None:
    """Return why a problem with a pass rate is dropped; None if it is kept.

    Args:
        rate: The pass rate; None if the problem has no verdict that counts.
        above: Rates must be larger.
        below: Rates must be smaller.
    """
    if rate is None:
        return "no_verdict"
    if rate <= above:
        return "never_solved"
    return "always_solved" if rate >= below else None


def histogram(rates: Sequence[float]) -> dict[str, Any]:
    """Count pass rates: those equal to 0, those equal to 1, and the others in ten bins.

    Args:
        rates: Pass rates in [0, 1].
    """
    between = Counter(bisect_right(EDGES, rate) - 1 for rate in rates if 0.0 < rate < 1.0)
    return {
        "zero": sum(rate == 0.0 for rate in rates),
        "edges": EDGES,
        "counts": [between[index] for index in range(len(EDGES) - 1)],
        "one": sum(rate == 1.0 for rate in rates),
    }


def _figures(
    problems: Sequence[Problem],
    filtered: Mapping[str, str],
    rates: Mapping[str, float],
    failed: int,
) -> dict[str, Any]:
    """Return the ``info`` of the stage's counts: a histogram per kind, and what was left out."""
    by_kind: dict[str, list[float]] = {}
    for name, kind in filtered.items():
        if name in rates:
            by_kind.setdefault(kind, []).append(rates[name])
    others = Counter(one.kind for one in problems if one.problem_id not in filtered)
    known = {one.problem_id for one in problems}
    figures = {
        "not_filtered": dict(sorted(others.items())),
        "failed_verdicts": failed,
        "problems_only_in_verdicts": len(rates.keys() - known),
    }
    histograms = {kind: histogram(found) for kind, found in sorted(by_kind.items())}
    return {"rates": histograms, **{name: value for name, value in figures.items() if value}}


def _check(counts: Counts, filtered: int, context: StageContext) -> None:
    """Refuse a result without verdicts or without problems; warn if all filtered ones are gone."""
    without = counts.dropped.get("no_verdict", 0)
    if filtered and without == filtered:
        raise StageError(
            f"none of the {filtered} problems to filter has a verdict that counts. Let the input "
            "verdicts come from a stage `grade` on these problems."
        )
    if counts.kept == 0:
        raise StageError(
            f"no problem is left (dropped: {counts.dropped}). Sample more responses per problem, "
            "sample with another policy or temperature, or change above and below."
        )
    if filtered and sum(counts.dropped.values()) == filtered:
        context.warn(f"every problem to filter was dropped: {counts.dropped}.")
