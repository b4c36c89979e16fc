"""A plan as the tables and lines that the command line prints one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pcl_reasoner.budget import (
    plan_report,
    round_report,
    sandbox_size,
    serving_report,
    uncertain,
)
from pcl_reasoner.budget.plan_training import Planned
from pcl_reasoner.estimate import days, measured, server_starts, waiting_report


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        columns: Headings.
        rows: The cells of each row.
        right: Headings of the columns of numbers.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()


Part = Table | list[str]


def parts(found: Planned) -> Iterator[Part]:
    """Yield the parts of a plan in their order; an empty line ends a group of parts."""
    yield [*plan_report.headlines(found), ""]
    yield from _measured(found)
    columns, rows = plan_report.memory_rows(found.now.job)
    yield Table(columns, rows, columns[1:])
    yield [plan_report.memory_verdict(found), *plan_report.notes(found), ""]
    yield [*plan_report.data_lines(found.size, found.derived), ""]
    numbers = plan_report.time_headings(found)
    yield Table(("time", *numbers), plan_report.time_rows(found.now), numbers)
    yield [*plan_report.time_lines(found), ""]
    if found.round is not None:
        yield [*round_report.lines(found.round), ""]
    yield Table(
        waiting_report.HEADINGS, waiting_report.rows(found.course.waited), waiting_report.NUMBERS
    )
    yield [*waiting_report.lines(found.course.run, found.course.waited, found.course.waits), ""]
    yield from _choices(found)
    yield from _servers(found)
    yield Table(("disk (GB = 10^9 bytes)", ""), found.disk)
    yield [""]
    yield from _calendar(found)


def _measured(found: Planned) -> Iterator[Part]:
    if (one := found.calibration) is not None:
        yield Table(measured.ROW_HEADINGS, one.rows, measured.ROW_HEADINGS[1:3])
        yield [f"measured by {one.run.file}", *one.notes, ""]


def _choices(found: Planned) -> Iterator[Part]:
    numbers: tuple[str, ...] = ("hours", "saved", "GiB")
    better = plan_report.change_rows(found)
    if better:
        yield Table(("changes worth most, one at a time", *numbers), better, numbers)
    else:
        yield ["no single change that was tried saves hours and fits"]
    yield [""]
    numbers = ("GiB", "hours", "MFU")
    columns = ("layout", "layers recomputed per stage", "GiB", "fits", "hours", "MFU")
    yield Table(columns, plan_report.layout_rows(found), numbers)
    yield [
        "layouts other than the first: swap off, as few recomputed layers as fit",
        plan_report.NO_CONTEXT_PARALLEL,
        "",
    ]


def _servers(found: Planned) -> Iterator[Part]:
    if found.sampling:
        columns = serving_report.HEADINGS
        rows = serving_report.rows(found.sampling)
        yield Table(columns, rows, columns[serving_report.TEXTS :])
        yield serving_report.lines(found.sampling)
    course = found.course
    if course.starts:
        headings, rate = server_starts.HEADINGS, course.waits.file_rate
        yield Table(headings, server_starts.rows(course.starts, rate), headings[1:])
        yield server_starts.lines(course.starts, len(found.placement.hosts), rate)
    yield [*sandbox_size.lines(found.sandboxes, found.placement), ""]


def _calendar(found: Planned) -> Iterator[Part]:
    stages = days.stage_rows(found.course.calendar)
    yield Table(days.STAGE_HEADINGS, stages, days.STAGE_HEADINGS[1:])
    yield [*days.lines(found.course.calendar), ""]
    yield Table(
        days.DAY_HEADINGS, days.day_rows(days.by_day(found.course.calendar)), ("disk at most",)
    )
    yield [""]
    yield Table(uncertain.HEADINGS, uncertain.rows(found))
