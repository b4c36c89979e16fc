"""Axes and shapes of charts as inline SVG.

``Markup.format`` escapes all text. Coordinates are rounded to a tenth of a pixel, so that charts of
equal values have equal bytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 360.0, 200.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 10.0, 34.0

Point = tuple[float, float]
Scale = Callable[[float], float]
"""Value -> position on an axis, before it is stretched to pixels."""


def log_count(value: float) -> float:
    """Position of a number of records on a logarithmic axis that begins at 0."""
    return math.log10(1.0 + value)


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
class Frame:
    """The drawing's axes, which map values to pixels.

    Args:
        x_ticks: Numbers at the x axis; the first and the last are its ends.
        y_ticks: Those at the y axis.
        x_scale: Value -> position on the x axis.
        y_scale: The same for the y axis.
        right: Pixels to the right of the drawing; more if there is an axis.
        top: Pixels above the drawing; more if names stand there.
        unit: Text after the numbers at the y axis.
    """

    x_ticks: list[float]
    y_ticks: list[float]
    x_scale: Scale = float
    y_scale: Scale = float
    right: float = RIGHT
    top: float = TOP
    unit: str = ""

    def x(self, value: float) -> float:
        """Return a value's pixels from the left."""
        low, at, high = map(self.x_scale, (self.x_ticks[0], value, self.x_ticks[-1]))
        return LEFT + (at - low) / (high - low) * (WIDTH - LEFT - self.right)

    def y(self, value: float) -> float:
        """Return a value's pixels from the top."""
        low, at, high = map(self.y_scale, (self.y_ticks[0], value, self.y_ticks[-1]))
        return HEIGHT - BOTTOM - (at - low) / (high - low) * (HEIGHT - self.top - BOTTOM)

    def draw(self, x_label: str) -> Markup:
        """Draw grid lines, tick numbers and the name of the x axis."""
        parts = []
        for tick in self.y_ticks:
            y = self.y(tick)
            parts.append(line("grid", LEFT, y, WIDTH - self.right, y))
            parts.append(text("end", LEFT - 6, y + 3.5, tick_text(tick) + self.unit))
        for tick in self.x_ticks:
            x = self.x(tick)
            parts.append(line("tick", x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 4))
            parts.append(text("middle", x, HEIGHT - BOTTOM + 16, tick_text(tick)))
        middle = (LEFT + WIDTH - self.right) / 2
        parts.append(text("middle", middle, HEIGHT - 4, x_label))
        return Markup("").join(parts)


def line(style: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    """Draw a straight line between two places, in pixels; ``style`` is its CSS class."""
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        style, x1, y1, x2, y2
    )


def text(anchor: str, x: float, y: float, words: str) -> Markup:
    """Write words; ``anchor`` is ``start``, ``middle`` or ``end``."""
    return Markup('<text text-anchor="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(
        anchor, x, y, words
    )


def rect(style: str, x: float, y: float, width: float, height: float, tooltip: str) -> Markup:
    """Draw a filled rectangle with a tooltip, in pixels."""
    return Markup(
        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
        "<title>{}</title></rect>"
    ).format(style, x, y, width, height, tooltip)


def svg(label: str, height: float, parts: Sequence[Markup], width: float = WIDTH) -> Markup:
    """Put shapes together to a drawing; ``label`` says what it shows, for screen readers."""
    return Markup(
        '<svg viewBox="0 0 {:.1f} {:.1f}" role="img" aria-label="{}" '
        'xmlns="http://www.w3.org/2000/svg">{}</svg>'
    ).format(width, height, label, Markup("").join(parts))


def polyline(style: str, frame: Frame, points: Sequence[Point]) -> Markup:
    """Draw a line through points, in values."""
    return Markup('<polyline class="{}" points="{}"/>').format(style, _pixels(frame, points))


def polygon(style: str, frame: Frame, points: Sequence[Point]) -> Markup:
    """Draw a filled area whose corners are points, in values."""
    return Markup('<polygon class="{}" points="{}"/>').format(style, _pixels(frame, points))


def _pixels(frame: Frame, points: Sequence[Point]) -> str:
    return " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)


def dot(style: str, x: float, y: float, tooltip: str, radius: float = 2.0) -> Markup:
    """Draw a dot with a tooltip, in pixels."""
    return Markup(
        '<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>'
    ).format(style, x, y, radius, tooltip)
