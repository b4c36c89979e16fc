"""Charts as inline SVG, in fixed drawing sizes, so that text stays readable at any page width.

``Markup.format`` escapes all text. Coordinates are rounded to a tenth of a pixel, so that charts of
equal values have equal bytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 360.0, 200.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 10.0, 34.0
BUCKETS = 40
"""Maximum number of points in the bold line of a long curve."""
SHORT = 100
"""A curve of at most this many points is drawn without averaging."""

Point = tuple[float, float]
Scale = Callable[[float], float]
"""Value -> position on an axis, before it is stretched to pixels."""


def log_count(value: float) -> float:
    """Position of a number of records on a logarithmic axis that begins at 0."""
    return math.log10(1.0 + value)


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


def nice_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Return round numbers in equal steps that cover the range from ``low`` to ``high``.

    Args:
        low: Smallest value to be covered.
        high: Largest value to be covered; if it is not above ``low``, the range is widened.
        about: Number of steps wanted.
    """
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1.0, 2.0, 2.5, 5.0, 10.0) if power * m >= rough * 0.999999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10, … that cover the range; only the powers of ten if it is wide.

    Args:
        low: Smallest value to be covered, above 0.
        high: Largest value to be covered.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(max(high, low * 2))) + 1)
    fine = [m * 10.0**power for power in powers for m in (1.0, 2.0, 5.0)]
    first = max(index for index, tick in enumerate(fine) if tick <= low)
    last = next(index for index, tick in enumerate(fine) if tick >= max(high, low * 2))
    found = fine[first : last + 1]
    if len(found) > 7:
        tens = [10.0**power for power in powers if fine[first] < 10.0**power < fine[last]]
        found = [fine[first], *tens, fine[last]]
    return found


def tick_text(value: float) -> str:
    """Format a tick's number as short text, with an exponent only if it needs one."""
    if value == 0:
        return "0"
    if 1e4 <= abs(value) < 1e15 and value == int(value):
        return group(int(value)) if abs(value) < 1e7 else f"{value:.3g}"
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


def group(value: int) -> str:
    """Format an integer with groups of three digits, separated by a narrow no-break space."""
    return f"{value:,}".replace(",", "\u202f")


@dataclass(frozen=True)
class _Frame:
    """The drawing's axes, which map values to pixels."""

    x_ticks: list[float]
    y_ticks: list[float]
    x_scale: Scale = float
    y_scale: Scale = float
    right: float = RIGHT
    """Pixels to the right of the drawing; more if there is an axis."""

    def x(self, value: float) -> float:
        low, at, high = map(self.x_scale, (self.x_ticks[0], value, self.x_ticks[-1]))
        return LEFT + (at - low) / (high - low) * (WIDTH - LEFT - self.right)

    def y(self, value: float) -> float:
        low, at, high = map(self.y_scale, (self.y_ticks[0], value, self.y_ticks[-1]))
        return HEIGHT - BOTTOM - (at - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def draw(self, x_label: str) -> Markup:
        """Draw grid lines, tick numbers and the name of the x axis."""
        parts = []
        for tick in self.y_ticks:
            y = self.y(tick)
            parts.append(_line("grid", LEFT, y, WIDTH - self.right, y))
            parts.append(_text("end", LEFT - 6, y + 3.5, tick_text(tick)))
        for tick in self.x_ticks:
            x = self.x(tick)
            parts.append(_line("tick", x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 4))
            parts.append(_text("middle", x, HEIGHT - BOTTOM + 16, tick_text(tick)))
        parts.append(_text("middle", (LEFT + WIDTH - self.right) / 2, HEIGHT - 4, x_label))
        return Markup("").join(parts)


def _line(style: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        style, x1, y1, x2, y2
    )


def _text(anchor: str, x: float, y: float, text: str) -> Markup:
    return Markup('<text text-anchor="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(
        anchor, x, y, text
    )


def _rect(style: str, x: float, y: float, width: float, height: float, tooltip: str) -> Markup:
    return Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
        "<title>{}</title></rect>"
    ).format(style, x, y, width, height, tooltip)


def _svg(label: str, height: float, parts: Sequence[Markup], width: float = WIDTH) -> Markup:
    return Markup(
        '<svg viewBox="0 0 {:.1f} {:.1f}" role="img" aria-label="{}" '
        'xmlns="http://www.w3.org/2000/svg">{}</svg>'
    ).format(width, height, label, Markup("").join(parts))


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
    x_ticks = nice_ticks(min(xs), max(xs))
    y_ticks = nice_ticks(min(0.0, *ys) if min(ys) >= 0 else min(ys), max(ys))
    frame = _Frame(x_ticks, y_ticks)
    parts = [frame.draw("step")]
    for one in series:
        parts += _curve(frame, one)
    return _svg(label, HEIGHT, parts)


def _curve(frame: _Frame, one: Series) -> list[Markup]:
    """Draw one curve: its points if they are few, else their means and a thin line."""
    parts = []
    means = bucket_means(one.points, SHORT if len(one.points) <= SHORT else BUCKETS)
    if len(means) < len(one.points):
        # 800 points are as fine as the drawing can show.
        thin = [point for point, _ in bucket_means(one.points, 800)]
        parts.append(_polyline(f"raw {one.style}", frame, thin))
    parts.append(_polyline(f"curve {one.style}", frame, [point for point, _ in means]))
    for (x, y), (first, last) in means:
        steps = f"{first:g}" if first == last else f"{first:g}–{last:g}"
        tooltip = f"{one.name}, step {steps}: {y:.4g}"
        parts.append(_dot(one.style, frame.x(x), frame.y(y), tooltip))
    return parts


def two_axis_chart(label: str, left: Series, right: Series) -> Markup:
    """Draw two curves by step: one on the left axis, from 0, and a share on the right axis.

    Args:
        label: What the chart shows, for screen readers.
        left: Has at least one point.
        right: Fractions in [0, 1], at least one.
    """
    steps = [x for one in (left, right) for x, _ in one.points]
    x_ticks = nice_ticks(min(steps), max(steps))
    y_ticks = nice_ticks(0.0, max(y for _, y in left.points))
    frame = _Frame(x_ticks, y_ticks, right=46.0)
    shares = _Frame(x_ticks, [0.0, 1.0], right=46.0)
    parts = [frame.draw("step"), *_curve(frame, left), *_curve(shares, right)]
    for percent in (0, 25, 50, 75, 100):
        y = shares.y(percent / 100) + 3.5
        parts.append(_text("start", WIDTH - shares.right + 6, y, f"{percent} %"))
    return _svg(label, HEIGHT, parts)


def _polyline(style: str, frame: _Frame, points: Sequence[Point]) -> Markup:
    text = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
    return Markup('<polyline class="{}" points="{}"/>').format(style, text)


def _dot(style: str, x: float, y: float, tooltip: str, radius: float = 2.0) -> Markup:
    return Markup(
        '<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>'
    ).format(style, x, y, radius, tooltip)


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
        y_ticks = [0.0, *log_ticks(1.0, largest)]
        frame = _Frame(log_ticks(edges[0], edges[-1]), y_ticks, math.log10, log_count, 24.0)
    else:
        frame = _Frame(nice_ticks(edges[0], edges[-1]), nice_ticks(0.0, largest))
    bars = zip(edges, edges[1:], counts, strict=False)
    parts = [frame.draw(x_label), *(_bar(frame, *bar) for bar in bars)]
    if threshold is not None and edges[0] <= threshold <= edges[-1]:
        x = frame.x(threshold)
        parts.append(_line("threshold", x, TOP, x, HEIGHT - BOTTOM))
    return _svg(label, HEIGHT, parts)


def _bar(frame: _Frame, low: float, high: float, count: int) -> Markup:
    """Draw one bar of a histogram, with a tooltip."""
    tooltip = f"{tick_text(low)}–{tick_text(high)}: {group(int(count))}"
    left, right, top = frame.x(low), frame.x(high), frame.y(count)
    width = max(right - left - 0.6, 0.6)
    return _rect("bar", left, top, width, frame.y(0.0) - top, tooltip)


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
        parts.append(_line("grid", x, 4.0, x, height - 24.0))
        parts.append(_text("middle", x, height - 8.0, f"{percent}%"))
    for index, one in enumerate(estimates):
        y = row * index + 17.0
        tooltip = f"{one.name}: {one.value:.1%} [{one.low:.1%}, {one.high:.1%}]"
        parts.append(_text("end", left - 10, y + 3.5, one.name))
        style, low, high = f"whisker {one.style}", x_of(one.low), x_of(one.high)
        parts.append(_line(style, low, y, high, y))
        parts += [_line(style, x, y - 5, x, y + 5) for x in (low, high)]
        parts.append(_dot(one.style, x_of(one.value), y, tooltip, 4.5))
    return _svg(label, height, parts)


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
    ticks = nice_ticks(0.0, max(sum(bar.parts) for bar in bars), 5)

    def x_of(value: float) -> float:
        return left + value / ticks[-1] * (width - left - right)

    drawn = [_legend(parts, left)]
    for tick in ticks:
        drawn.append(_line("grid", x_of(tick), top - 6, x_of(tick), height - 20))
        drawn.append(_text("middle", x_of(tick), height - 6, f"{tick_text(tick)} {unit}"))
    for index, bar in enumerate(bars):
        y, start = top + row * index, 0.0
        drawn.append(_text("end", left - 8, y + 13, bar.name))
        for (name, style), value in zip(parts, bar.parts, strict=True):
            x, end = x_of(start), x_of(start + value)
            tooltip = f"{bar.name}: {name} {value:.1f} {unit}"
            drawn.append(_rect(f"{style} {bar.style}".strip(), x, y + 2, end - x, row - 7, tooltip))
            start += value
        drawn.append(_text("start", x_of(start) + 5, y + 13, bar.note))
    return _svg(label, height, drawn, width)


def _legend(parts: Sequence[tuple[str, str]], x: float) -> Markup:
    drawn = []
    for name, style in parts:
        drawn.append(_rect(style, x, 10.0, 10.0, 10.0, name))
        drawn.append(_text("start", x + 14, 19.0, name))
        x += 34 + 6.2 * len(name)
    return Markup("").join(drawn)


def alone(chart: Markup, style: str) -> str:
    """Return a chart as the text of an SVG file that contains its CSS."""
    head, _, body = str(chart).partition(">")
    return f"{head}><style>{style}</style>{body}\n"
