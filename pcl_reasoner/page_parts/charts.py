"""Charts as inline SVG, in fixed drawing sizes, so that text stays readable at any page width.

``Markup.format`` escapes all text. Coordinates are rounded to a tenth of a pixel, so that charts of
equal values have equal bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pcl_reasoner.page_parts import drawing
from pcl_reasoner.page_parts.drawing import BOTTOM, HEIGHT, TOP, WIDTH, Frame, Point, log_count

BUCKETS = 40
"""Maximum number of points in the bold line of a long curve."""
SHORT = 100
"""A curve of at most this many points is drawn without averaging."""


@dataclass(frozen=True)
class Series:
    """One curve.

    Args:
        name: Shown in the tooltip.
        style: The CSS class that gives its colour.
        points: (x, y), sorted by x.
    """

    name: str
    style: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Estimate:
    """One score with its 95 % interval, as fractions.

    Args:
        name: Shown to the left.
        style: The CSS class that gives its colour.
        value: In [0, 1].
        low: Lower end of the interval.
        high: Upper end.
    """

    name: str
    style: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Bar:
    """One bar, made of parts.

    Args:
        name: Shown to the left.
        parts: One value for each part of the chart.
        note: Shown at the bar's end.
        style: A further CSS class, e.g. for a bar that is paler than others.
    """

    name: str
    parts: Sequence[float]
    note: str = ""
    style: str = ""


def bucket_means(points: Sequence[Point], buckets: int) -> list[tuple[Point, Point]]:
    """Average neighbouring points: ((mean x, mean y), (first x, last x)) per group."""
    size = max(1, math.ceil(len(points) / buckets))
    found = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        mean_x = sum(x for x, _ in part) / len(part)
        mean_y = sum(y for _, y in part) / len(part)
        found.append(((mean_x, mean_y), (part[0][0], part[-1][0])))
    return found


def line_chart(label: str, series: Sequence[Series]) -> Markup:
    """Draw curves by step: means of neighbouring points as a bold line, the points as a thin one.

    Args:
        label: What the chart shows, for screen readers.
        series: Each has at least one point.
    """
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    x_ticks = drawing.nice_ticks(min(xs), max(xs))
    y_ticks = drawing.nice_ticks(min(0.0, *ys) if min(ys) >= 0 else min(ys), max(ys))
    frame = Frame(x_ticks, y_ticks)
    parts = [frame.draw("step")]
    for one in series:
        parts += _curve(frame, one)
    return drawing.svg(label, HEIGHT, parts)


def _curve(frame: Frame, one: Series) -> list[Markup]:
    """Draw one curve: its points if they are few, else their means and a thin line."""
    parts = []
    means = bucket_means(one.points, SHORT if len(one.points) <= SHORT else BUCKETS)
    if len(means) < len(one.points):
        # 800 points are as fine as the drawing can show.
        thin = [point for point, _ in bucket_means(one.points, 800)]
        parts.append(drawing.polyline(f"raw {one.style}", frame, thin))
    parts.append(drawing.polyline(f"curve {one.style}", frame, [point for point, _ in means]))
    for (x, y), (first, last) in means:
        steps = f"{first:g}" if first == last else f"{first:g}–{last:g}"
        tooltip = f"{one.name}, step {steps}: {y:.4g}"
        parts.append(drawing.dot(one.style, frame.x(x), frame.y(y), tooltip))
    return parts


def two_axis_chart(label: str, left: Series, right: Series) -> Markup:
    """Draw two curves by step: one on the left axis, from 0, and a share on the right axis.

    Args:
        label: What the chart shows, for screen readers.
        left: Has at least one point.
        right: Fractions in [0, 1], at least one.
    """
    steps = [x for one in (left, right) for x, _ in one.points]
    x_ticks = drawing.nice_ticks(min(steps), max(steps))
    y_ticks = drawing.nice_ticks(0.0, max(y for _, y in left.points))
    frame = Frame(x_ticks, y_ticks, right=46.0)
    shares = Frame(x_ticks, [0.0, 1.0], right=46.0)
    parts = [frame.draw("step"), *_curve(frame, left), *_curve(shares, right)]
    for percent in (0, 25, 50, 75, 100):
        y = shares.y(percent / 100) + 3.5
        parts.append(drawing.text("start", WIDTH - shares.right + 6, y, f"{percent} %"))
    return drawing.svg(label, HEIGHT, parts)


def histogram(
    label: str,
    edges: Sequence[float],
    counts: Sequence[int],
    x_label: str,
    threshold: float | None = None,
    logarithmic: bool = False,
) -> Markup:
    """Draw a histogram.

    Args:
        label: What the chart shows, for screen readers.
        edges: The bars' edges, ascending, one more than there are counts.
        counts: Number of records between each edge and the next.
        x_label: Name of the x axis.
        threshold: Drawn as a vertical line if it is between the first and the last edge.
        logarithmic: Both axes are logarithmic, so that a bar of one record can be seen beside a bar
            of thousands; the first edge is above 0.
    """
    largest = max([1.0, *counts])
    if logarithmic:
        y_ticks = [0.0, *drawing.log_ticks(1.0, largest)]
        frame = Frame(drawing.log_ticks(edges[0], edges[-1]), y_ticks, math.log10, log_count, 24.0)
    else:
        frame = Frame(drawing.nice_ticks(edges[0], edges[-1]), drawing.nice_ticks(0.0, largest))
    bars = zip(edges, edges[1:], counts, strict=False)
    parts = [frame.draw(x_label), *(_bar(frame, *bar) for bar in bars)]
    if threshold is not None and edges[0] <= threshold <= edges[-1]:
        x = frame.x(threshold)
        parts.append(drawing.line("threshold", x, TOP, x, HEIGHT - BOTTOM))
    return drawing.svg(label, HEIGHT, parts)


def _bar(frame: Frame, low: float, high: float, count: int) -> Markup:
    """Draw one bar of a histogram, with a tooltip."""
    tooltip = f"{drawing.tick_text(low)}–{drawing.tick_text(high)}: {drawing.group(int(count))}"
    left, right, top = frame.x(low), frame.x(high), frame.y(count)
    width = max(right - left - 0.6, 0.6)
    return drawing.rect("bar", left, top, width, frame.y(0.0) - top, tooltip)


def interval_chart(label: str, estimates: Sequence[Estimate]) -> Markup:
    """Draw scores as dots with whiskers on one axis from 0 to 100 %.

    Args:
        label: What the chart shows, for screen readers.
        estimates: The scores, from top to bottom.
    """
    row = 26.0
    # A letter has about 6.2 pixels.
    left = max(104.0, 16.0 + 6.2 * max(len(one.name) for one in estimates))
    height = row * len(estimates) + 30.0

    def x_of(value: float) -> float:
        return left + min(max(value, 0.0), 1.0) * (WIDTH - left - 18.0)

    parts = []
    for percent in (0, 25, 50, 75, 100):
        x = x_of(percent / 100)
        parts.append(drawing.line("grid", x, 4.0, x, height - 24.0))
        parts.append(drawing.text("middle", x, height - 8.0, f"{percent}%"))
    for index, one in enumerate(estimates):
        y = row * index + 17.0
        tooltip = f"{one.name}: {one.value:.1%} [{one.low:.1%}, {one.high:.1%}]"
        parts.append(drawing.text("end", left - 10, y + 3.5, one.name))
        style, low, high = f"whisker {one.style}", x_of(one.low), x_of(one.high)
        parts.append(drawing.line(style, low, y, high, y))
        parts += [drawing.line(style, x, y - 5, x, y + 5) for x in (low, high)]
        parts.append(drawing.dot(one.style, x_of(one.value), y, tooltip, 4.5))
    return drawing.svg(label, height, parts)


def bar_chart(
    label: str, parts: Sequence[tuple[str, str]], bars: Sequence[Bar], unit: str
) -> Markup:
    """Draw horizontal bars, each divided into the same parts, with a legend above.

    Args:
        label: What the chart shows, for screen readers.
        parts: Name and CSS class of each part.
        bars: From top to bottom.
        unit: Unit of the values, e.g. ``h``.
    """
    width, left, right, top, row = 720.0, 170.0, 110.0, 40.0, 22.0
    height = top + row * len(bars) + 24
    ticks = drawing.nice_ticks(0.0, max(sum(bar.parts) for bar in bars), 5)

    def x_of(value: float) -> float:
        return left + value / ticks[-1] * (width - left - right)

    drawn = [_legend(parts, left)]
    for tick in ticks:
        drawn.append(drawing.line("grid", x_of(tick), top - 6, x_of(tick), height - 20))
        drawn.append(
            drawing.text("middle", x_of(tick), height - 6, f"{drawing.tick_text(tick)} {unit}")
        )
    for index, bar in enumerate(bars):
        y, start = top + row * index, 0.0
        drawn.append(drawing.text("end", left - 8, y + 13, bar.name))
        for (name, style), value in zip(parts, bar.parts, strict=True):
            x, end = x_of(start), x_of(start + value)
            tooltip = f"{bar.name}: {name} {value:.1f} {unit}"
            drawn.append(
                drawing.rect(f"{style} {bar.style}".strip(), x, y + 2, end - x, row - 7, tooltip)
            )
            start += value
        drawn.append(drawing.text("start", x_of(start) + 5, y + 13, bar.note))
    return drawing.svg(label, height, drawn, width)


def _legend(parts: Sequence[tuple[str, str]], x: float) -> Markup:
    drawn = []
    for name, style in parts:
        drawn.append(drawing.rect(style, x, 10.0, 10.0, 10.0, name))
        drawn.append(drawing.text("start", x + 14, 19.0, name))
        x += 34 + 6.2 * len(name)
    return Markup("").join(drawn)


def alone(chart: Markup, style: str) -> str:
    """Return a chart as the text of an SVG file that contains its CSS."""
    head, _, body = str(chart).partition(">")
    return f"{head}><style>{style}</style>{body}\n"
