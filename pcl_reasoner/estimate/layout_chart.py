"""Layouts as bars of hours, as an SVG file that stands alone."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pcl_reasoner.estimate.layouts import SECONDS_AN_HOUR, Choice
from pcl_reasoner.report.charts import nice_ticks, tick_text

WIDTH, LEFT, RIGHT, TOP, ROW = 720.0, 170.0, 110.0, 40.0, 22.0
GIB = 2**30
PARTS = (
    ("compute", "#3b6ea5"),
    ("tensor communication", "#7fb3d5"),
    ("pipeline bubble", "#e0a458"),
    ("everything else", "#8a8a8a"),
)
_STYLE = "text{font:12px sans-serif;fill:#333} .grid{stroke:#ddd} .over{opacity:.3}"


def layout_chart(choices: Sequence[Choice]) -> str:
    """Draw hours by layout, cut into what they go to; pale where memory does not suffice.

    Args:
        choices: One bar each, from the top.
    """
    height = TOP + ROW * len(choices) + 24
    ticks = nice_ticks(0.0, max(one.hours for one in choices), 5)
    body = [_legend(), _grid(ticks, height)]
    for index, one in enumerate(choices):
        body.append(_bar(one, TOP + ROW * index, ticks[-1]))
    label = "Hours by parallel layout"
    head = (
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" xmlns="http://www.w3.org/2000/svg">'
        "<style>{}</style>{}</svg>\n"
    )
    return str(Markup(head).format(_px(WIDTH), _px(height), label, _STYLE, Markup("").join(body)))


def _px(value: float) -> str:
    return f"{value:.1f}"


def _x(hours: float, most: float) -> float:
    return LEFT + hours / most * (WIDTH - LEFT - RIGHT)


def _text(anchor: str, x: float, y: float, text: str) -> Markup:
    return Markup('<text text-anchor="{}" x="{}" y="{}">{}</text>').format(
        anchor, _px(x), _px(y), text
    )


def _rect(style: str, colour: str, place: tuple[float, float, float, float], text: str) -> Markup:
    x, y, width, height = place
    return Markup(
        '<rect class="{}" fill="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>'
    ).format(style, colour, _px(x), _px(y), _px(width), _px(height), text)


def _legend() -> Markup:
    parts, x = [], LEFT
    for name, colour in PARTS:
        parts.append(_rect("", colour, (x, 10.0, 10.0, 10.0), name))
        parts.append(_text("start", x + 14, 19.0, name))
        x += 34 + 6.2 * len(name)
    return Markup("").join(parts)


def _grid(ticks: Sequence[float], height: float) -> Markup:
    parts = []
    for tick in ticks:
        x = _x(tick, ticks[-1])
        line = '<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>'
        parts.append(Markup(line).format(_px(x), _px(TOP - 6), _px(height - 20)))
        parts.append(_text("middle", x, height - 6, f"{tick_text(tick)} h"))
    return Markup("").join(parts)


def _bar(one: Choice, y: float, most: float) -> Markup:
    parts = [_text("end", LEFT - 8, y + 13, one.title)]
    start = 0.0
    for (name, colour), seconds in zip(PARTS, _seconds(one), strict=True):
        hours = one.steps * seconds / SECONDS_AN_HOUR
        x = _x(start, most)
        place = (x, y + 2, _x(start + hours, most) - x, ROW - 7)
        style = "" if one.fits else "over"
        parts.append(_rect(style, colour, place, f"{one.title}: {name} {hours:.1f} h"))
        start += hours
    words = f"{one.hours:.0f} h, {one.bytes / GIB:.0f} GiB"
    parts.append(_text("start", _x(start, most) + 5, y + 13, words))
    return Markup("").join(parts)


def _seconds(one: Choice) -> tuple[float, ...]:
    named = (one.step.compute, one.step.tensor_communication, one.step.bubble)
    return (*named, one.step.total - sum(named))
