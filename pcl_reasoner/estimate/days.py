"""The hours of a recipe's stages one after another, and the disk that is full on each day.

    stage    starts at   hours   disk while it runs   disk after it
    sample       0.0 h    11.9                78 GB           70 GB
    train       14.5 h    29.3             4,437 GB          222 GB

    day   stages                 disk at most
    1     sample, grade, train       1,356 GB
    2     train                      4,437 GB

The hours of some stages are not known here. Such a stage counts as 0 h, and is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

HOURS_PER_DAY = 24
GB = 1e9


@dataclass(frozen=True)
class Growth:
    """How a stage's disk grows while it runs.

    Args:
        start: Bytes that it writes soon after it has started.
        step: Bytes that are added at a time, e.g. a checkpoint.
        count: Number of these additions.
        every: Hours between two of them.
        end: Bytes that it writes at its end.
        after: Bytes that are left when it has finished.
    """

    start: float = 0.0
    step: float = 0.0
    count: int = 0
    every: float = 1.0
    end: float = 0.0
    after: float = 0.0

    def at(self, hours: float) -> float:
        """Bytes after some of the stage's hours, before its end."""
        return self.start + self.step * min(self.count, int(hours / self.every + 1e-9))

    @property
    def most(self) -> float:
        """Bytes at the fullest moment, which is its end."""
        return self.start + self.step * self.count + self.end


@dataclass(frozen=True)
class StageTime:
    """One stage in the order of the run.

    Args:
        title: The recipe and the stage.
        hours: Hours that it takes; None if they are not known here.
        growth: How its disk grows.
    """

    title: str
    hours: float | None
    growth: Growth


@dataclass(frozen=True)
class Placed:
    """A stage and the moment at which it starts.

    Args:
        stage: The stage.
        start: Hours after the start of the run.
        before: Bytes that are on the disk by then.
    """

    stage: StageTime
    start: float
    before: float

    @property
    def end(self) -> float:
        """Hours after the start of the run."""
        return self.start + (self.stage.hours or 0.0)

    def most(self, last: float) -> float:
        """Bytes at the fullest moment until an hour of the run, while this stage runs."""
        if last >= self.end:
            return self.before + self.stage.growth.most
        return self.before + self.stage.growth.at(last - self.start)


@dataclass(frozen=True)
class Day:
    """A day, or several that are alike.

    Args:
        first: The day's number, from 1.
        last: The last of the days that are alike.
        stages: Titles of the stages that run.
        most: Bytes at the fullest moment.
    """

    first: int
    last: int
    stages: tuple[str, ...]
    most: float


def in_order(fetched: float, stages: Sequence[StageTime]) -> list[Placed]:
    """Put stages one after another.

    Args:
        fetched: Bytes of models that are fetched before the first stage.
        stages: The stages in their order.
    """
    placed, hour, full = [], 0.0, fetched
    for stage in stages:
        one = Placed(stage, hour, full)
        placed.append(one)
        hour, full = one.end, full + stage.growth.after
    return placed


def by_day(placed: Sequence[Placed]) -> list[Day]:
    """Return the days of a run; days on which the same stages run with the same disk are one."""
    timed = [one for one in placed if one.stage.hours is not None]
    if not timed:
        return []
    number = max(1, -int(-timed[-1].end // HOURS_PER_DAY))
    days = [_day(timed, day) for day in range(1, number + 1)]
    found = []
    for _, alike in groupby(days, lambda day: (day.stages, round(day.most / GB))):
        same = list(alike)
        found.append(Day(same[0].first, same[-1].last, same[0].stages, same[0].most))
    return found


def _day(timed: Sequence[Placed], day: int) -> Day:
    first, last = (day - 1) * HOURS_PER_DAY, day * HOURS_PER_DAY
    running = [one for one in timed if one.start < last and (one.end > first or day == 1)]
    most = max(one.most(last) for one in running)
    return Day(day, day, tuple(one.stage.title for one in running), most)


STAGE_HEADINGS = ("stage", "starts at", "hours", "disk while it runs", "disk after it")
DAY_HEADINGS = ("day", "stages", "disk at most")


def stage_rows(placed: Sequence[Placed]) -> list[tuple[str, ...]]:
    """One row per stage whose hours are known or that needs disk."""
    return [
        (
            one.stage.title.partition("/")[2],
            f"{one.start:.1f} h",
            "unknown" if one.stage.hours is None else f"{one.stage.hours:.1f}",
            f"{(one.before + one.stage.growth.most) / GB:,.0f} GB",
            f"{(one.before + one.stage.growth.after) / GB:,.0f} GB",
        )
        for one in placed
        if one.stage.hours is not None or one.stage.growth.most
    ]


def day_rows(days: Sequence[Day]) -> list[tuple[str, ...]]:
    """One row per day, or per run of days that are alike."""
    return [
        (
            f"{day.first}" if day.first == day.last else f"{day.first} to {day.last}",
            ", ".join(title.partition("/")[2] for title in day.stages),
            f"{day.most / GB:,.0f} GB",
        )
        for day in days
    ]


def lines(placed: Sequence[Placed]) -> list[str]:
    """The hours of all stages together, and the stages that count as 0 h."""
    hours = sum(one.stage.hours or 0.0 for one in placed)
    found = [f"all stages whose hours are known here, one after another: {hours:,.1f} h"]
    unknown = [one.stage.title for one in placed if one.stage.hours is None]
    if unknown:
        names = ", ".join(title.partition("/")[2] for title in unknown)
        found.append(f"  hours not known here, counted as 0: {names}")
    return found
