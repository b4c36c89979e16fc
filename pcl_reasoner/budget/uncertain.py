"""For each figure of a plan: its largest uncertainty, and what to measure to remove it.

figure         estimate   could be            largest uncertainty                    measure
hours: train   29.2 h     24.2 to 80.6 h      share of matrix products, 20% to 75%   20 steps …
hours: sample  18.8 h     6.2 to 37.6 h       tokens per response, x 0.5 to 1.5      …
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pcl_reasoner.budget.plan_training import Planned
from pcl_reasoner.budget.serving_report import SamplingEstimate
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.layouts import choice
from pcl_reasoner.estimate.serving_estimate import cost
from pcl_reasoner.estimate.training_size import GIB
from pcl_reasoner.estimate.uncertainty import (
    LENGTHS,
    MATRIX_SHARES,
    MEMORY_SHARES,
    Spread,
    largest,
    save_spread,
    start_spread,
    training_spreads,
    with_shares,
)

HEADINGS = ("figure", "estimate", "could be", "largest uncertainty", "what to measure")
NOTHING = "none of those that are varied here: all are measured or given"

Row = tuple[str, str, str, str, str]


def rows(found: Planned) -> list[Row]:
    """One row per figure."""
    course = found.course
    part = ", training of a round" if found.round else ""
    return [
        _row(f"hours of {found.stage}{part}", found.now.hours, "h", _training(found)),
        _row("seconds of a save", sum(course.waited.save.values()), "s", _save(found)),
        _row("seconds of the first start", sum(course.waited.start.values()), "s", _start(found)),
        *(
            _row(f"hours of {one.workload.stage}", one.cost.hours, "h", _served(one, found.chip))
            for one in found.sampling
            if one.cost is not None
        ),
        (
            "memory of the fullest stage",
            f"{found.now.bytes / GIB:.1f} GiB",
            "more",
            "what allocator, kernels and collectives take in addition: not included",
            "the peak of MindSpore's dry run: compile --with-cann, then --dry-run-log",
        ),
        (
            "disk",
            f"{_most_disk(found) / 1e9:,.0f} GB",
            "more",
            "data sets are not counted; bytes per token of responses are ASSUMED",
            "the folders of a run of 100 problems",
        ),
    ]


def _row(figure: str, value: float, unit: str, spread: Spread | None) -> Row:
    if spread is None:
        return figure, f"{value:,.1f} {unit}", "", NOTHING, ""
    could_be = f"{spread.low:,.1f} to {spread.high:,.1f} {unit}"
    return figure, f"{value:,.1f} {unit}", could_be, spread.cause, spread.measure


def _most_disk(found: Planned) -> float:
    return max(one.before + one.stage.growth.most for one in found.course.calendar)


def _training(found: Planned) -> Spread | None:
    """The hours of training; of a stage ``rl`` those of a round's training."""

    def hours(chip: Chip, size: DataSize) -> float:
        return choice("", found.now.job, chip, size).hours

    return largest(training_spreads(hours, found.chip, found.size, found.is_length_known))


def _save(found: Planned) -> Spread | None:
    return save_spread(found.course.run, found.chip, found.course.waits)


def _start(found: Planned) -> Spread | None:
    return start_spread(found.course.run, found.course.waits)


def _served(one: SamplingEstimate, chip: Chip) -> Spread | None:
    return largest(served_spreads(one, chip))


def served_spreads(one: SamplingEstimate, chip: Chip) -> Iterator[Spread]:
    """Yield what each assumption does to the hours of a stage on servers, which has a cost."""
    model, workload, now = one.shape, one.workload, one.cost
    assert model is not None and now is not None
    if not workload.tokens:
        if "matrix" not in chip.measured:
            low, high = (
                cost(model, with_shares(chip, matrix=share), workload).hours
                for share in MATRIX_SHARES
            )
            cause = f"share of matrix products, {MATRIX_SHARES[0]:.0%} to {MATRIX_SHARES[1]:.0%}"
            yield Spread(cause, (low, high), "tokens per second of one server while it reads")
        return
    low, high = (
        cost(model, with_shares(chip, memory=share), workload).hours for share in MEMORY_SHARES
    )
    cause = f"share of memory's rate, {MEMORY_SHARES[0]:.0%} to {MEMORY_SHARES[1]:.0%}"
    yield Spread(cause, (low, high), f"ms per token of one server with {now.at_once} responses")
    cause = "servers that are always full; the longest response alone at the end"
    ends = (now.hours, now.hours + now.longest_hours)
    yield Spread(cause, ends, "seconds per response of a part of the stage (its Parquet)")
    if any("ASSUMED" in note for note in workload.notes if note.startswith("tokens")):
        low, high = (
            cost(model, chip, replace(workload, tokens=workload.tokens * factor)).hours
            for factor in LENGTHS
        )
        cause = f"tokens per response, x {LENGTHS[0]:g} to {LENGTHS[1]:g}"
        yield Spread(cause, (low, high), "the mean of 100 responses, then --response-tokens")
