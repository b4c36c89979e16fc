"""Charts over the rounds of training stages that follow each other, as inline SVG.

    rl_1                       | rl_2
    rounds 0 … 23                rounds 0 … 13
    0         10        20     24       30     38     the x axis counts the rounds of all stages

A curve belongs to one stage, so that it is not drawn across the switch. A figure of round r is
drawn at r. The bar of round r reaches from r to r + 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pcl_reasoner.page_parts import drawing
from pcl_reasoner.page_parts.charts import BUCKETS, SHORT, bucket_means
from pcl_reasoner.page_parts.drawing import BOTTOM, HEIGHT, TOP, Frame, Point

BARS = 80
"""Maximum number of bars; of a longer training, a bar is the mean of neighbouring rounds."""
_RIGHT_AXIS = 46.0
"""Pixels of an axis to the right."""
_NAMES = 20.0
"""Pixels above the drawing, where the names of stages stand."""


@dataclass(frozen=True)
class Curve:
    """One figure over the rounds of one stage.

    Args:
        name: Shown in tooltips.
        style: The CSS classes that give its colour.
        stage: The stage's name, shown in tooltips.
        begin: Number of rounds of the stages before.
        points: (round of its stage, value), sorted by round.
        errors: Half the height of the band around each point; empty: there is no band.
        window: The bold line is the mean of this many neighbouring points; an odd number.
    """

    name: str
    style: str
    stage: str
    begin: int
    points: Sequence[Point]
    errors: Sequence[float] = ()
    window: int = 1

    @property
    def placed(self) -> list[Point]:
        """The points, with the rounds of all stages counted."""
        return [(self.begin + number, value) for number, value in self.points]

    @property
    def band(self) -> tuple[list[Point], list[Point]]:
        """The lower and the upper edge of the band."""
        pairs = list(zip(self.placed, self.errors, strict=False))
        low = [(x, value - error) for (x, value), error in pairs]
        return low, [(x, value + error) for (x, value), error in pairs]


@dataclass(frozen=True)
class Axis:
    """The axis of values.

    Args:
        unit: Text after its numbers.
        least: A value that the axis reaches down to; None: down to the smallest value.
        most: A value that it does not exceed; None: there is no such value.
        logarithmic: All values are above 0.
    """

    unit: str = ""
    least: float | None = 0.0
    most: float | None = None
    logarithmic: bool = False


@dataclass(frozen=True)
class Column:
    """One bar, of a round or of neighbouring rounds.

    Args:
        name: Shown in tooltips.
        begin: Its left edge, counted over all stages.
        end: Its right edge.
        parts: One value for each part of the chart.
    """

    name: str
    begin: int
    end: int
    parts: Sequence[float]


def round_chart(
    label: str,
    curves: Sequence[Curve],
    stages: Mapping[str, int],
    axis: Axis | None = None,
    shares: Sequence[Curve] = (),
    fits: Sequence[Curve] = (),
) -> Markup:
    """Draw curves over the rounds of all stages, with a vertical line where a stage begins.

    Args:
        label: What the chart shows, for screen readers.
        curves: At least one, with at least one point each.
        stages: Stage -> number of its rounds, in their order.
        axis: The axis of the curves.
        shares: Curves in per cent on an axis to the right, from 0 to 100 %.
        fits: Straight lines, drawn on the axis of the curves.
    """
    axis = axis or Axis()
    right = _RIGHT_AXIS if shares else drawing.RIGHT
    scale = math.log10 if axis.logarithmic else float
    x_ticks = round_ticks(sum(stages.values()))
    y_ticks = _y_ticks([*curves, *fits], axis)
    top = _top(stages)
    frame = Frame(x_ticks, y_ticks, y_scale=scale, right=right, top=top, unit=axis.unit)
    parts = [frame.draw("round"), _switches(frame, stages)]
    parts += [_band(frame, one) for one in curves if one.errors]
    for one in curves:
        parts += _curve(frame, one)
    parts += [drawing.polyline(f"fit {one.style}", frame, one.placed) for one in fits]
    percent = Frame(x_ticks, [0.0, 100.0], right=right, top=top)
    for one in shares:
        parts += _curve(percent, one)
    for tick in (0, 25, 50, 75, 100) if shares else ():
        place = drawing.WIDTH - right + 6
        parts.append(drawing.text("start", place, percent.y(tick) + 3.5, f"{tick} %"))
    return drawing.svg(label, HEIGHT, parts)


def stacked_chart(
    label: str,
    parts: Sequence[tuple[str, str]],
    columns: Sequence[Column],
    stages: Mapping[str, int],
    unit: str,
) -> Markup:
    """Draw a bar per round, divided into parts from the axis upwards.

    Args:
        label: What the chart shows, for screen readers.
        parts: Name and CSS classes of each part.
        columns: At least one.
        stages: Stage -> number of its rounds, in their order.
        unit: Text after the numbers of the axis.
    """
    highest = round(max(sum(one.parts) for one in columns), 6)  # 100 % is exactly 100
    y_ticks = drawing.nice_ticks(0.0, highest)
    x_ticks = round_ticks(sum(stages.values()))
    frame = Frame(x_ticks, y_ticks, top=_top(stages), unit=unit)
    drawn = [frame.draw("round")]
    for column in columns:
        left, width = frame.x(column.begin), frame.x(column.end) - frame.x(column.begin)
        below = 0.0
        for (name, style), value in zip(parts, column.parts, strict=True):
            if value > 0:
                top, bottom = frame.y(below + value), frame.y(below)
                tooltip = f"{column.name}: {name} {value:.3g}{unit}"
                box = (left, top, max(width - 0.6, 0.6), bottom - top)
                drawn.append(drawing.rect(style, *box, tooltip))
            below += value
    return drawing.svg(label, HEIGHT, [*drawn, _switches(frame, stages)])


def round_ticks(rounds: int) -> list[float]:
    """Return whole numbers in equal steps from 0 that cover a number of rounds."""
    return [tick for tick in drawing.nice_ticks(0.0, max(rounds, 1)) if tick == int(tick)]


def moving_mean(points: Sequence[Point], window: int) -> list[Point]:
    """Return each point's mean with its neighbours.

    Near an end, there are fewer neighbours on both sides: a rising curve stays where it is.

    Args:
        points: (x, y), sorted by x.
        window: Points in a mean; an odd number.
    """
    found = []
    for place, (x, _) in enumerate(points):
        reach = min(window // 2, place, len(points) - 1 - place)
        part = [y for _, y in points[place - reach : place + reach + 1]]
        found.append((x, sum(part) / len(part)))
    return found


def _y_ticks(curves: Sequence[Curve], axis: Axis) -> list[float]:
    """Return the numbers at the axis, which covers all points and bands."""
    edges = [edge for one in curves for edge in one.band]
    values = [y for part in (*edges, *(one.placed for one in curves)) for _, y in part]
    if axis.logarithmic:
        return drawing.log_ticks(min(values), max(values))
    high = max(values) if axis.most is None else min(axis.most, max(values))
    low = min(values) if axis.least is None else min(axis.least, *values)
    # Of equal values, the axis begins at 0.
    ticks = drawing.nice_ticks(low if low < high else min(0.0, low), high)
    return [tick for tick in ticks if axis.most is None or tick <= axis.most]


def _top(stages: Mapping[str, int]) -> float:
    return _NAMES if len(stages) > 1 else TOP


def _switches(frame: Frame, stages: Mapping[str, int]) -> Markup:
    """Name the stages above the chart, and draw a line where one follows another."""
    if len(stages) < 2:
        return Markup("")
    parts, begin = [], 0
    for name, rounds in stages.items():
        x = frame.x(begin)
        if begin:
            parts.append(drawing.line("switch", x, 2.0, x, HEIGHT - BOTTOM))
        parts.append(drawing.text("start", x + 4, _NAMES - 9, name))
        begin += rounds
    return Markup("").join(parts)


def _band(frame: Frame, one: Curve) -> Markup:
    """Draw the area between the edges of a band; it ends where the axis ends."""
    bottom, top = frame.y_ticks[0], frame.y_ticks[-1]
    low, high = ([(x, min(max(y, bottom), top)) for x, y in edge] for edge in one.band)
    return drawing.polygon(f"band {one.style}", frame, [*low, *reversed(high)])


def _curve(frame: Frame, one: Curve) -> list[Markup]:
    """Draw a curve: bold means, the points as a thin line, and dots with tooltips."""
    points = one.placed
    few = len(points) <= SHORT
    means = bucket_means(points, SHORT if few else BUCKETS)
    bold = moving_mean(points, one.window) if few else [point for point, _ in means]
    parts = [drawing.polyline(f"raw {one.style}", frame, points)] if bold != points else []
    parts.append(drawing.polyline(f"curve {one.style}", frame, bold))
    for (x, y), (first, last) in means:
        rounds = _rounds(first - one.begin, last - one.begin)
        tooltip = f"{one.name}, {one.stage} {rounds}: {y:.4g}"
        style = one.style if one.window == 1 else f"{one.style} faint"
        parts.append(drawing.dot(style, frame.x(x), frame.y(y), tooltip))
    return parts


def _rounds(first: float, last: float) -> str:
    return f"round {first:g}" if first == last else f"rounds {first:g}–{last:g}"
