"""Draws the hours of each layout as a bar, in a self-contained SVG file."""

from __future__ import annotations

from collections.abc import Sequence

from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR, Choice
from pcl_reasoner.report.charts import Bar, alone, bar_chart

GIB = 2**30
PARTS = (
    ("compute", "compute"),
    ("tensor communication", "tensor"),
    ("pipeline bubble", "bubble"),
    ("everything else", "rest"),
)
"""Parts of the hours: the label of each, and the CSS class of its colour."""
_STYLE = (
    "text{font:12px sans-serif;fill:#333} .grid{stroke:#ddd} .over{opacity:.3} "
    ".compute{fill:#3b6ea5} .tensor{fill:#7fb3d5} .bubble{fill:#e0a458} .rest{fill:#8a8a8a}"
)


def layout_chart(choices: Sequence[Choice]) -> str:
    """Draw the hours of each layout, divided into PARTS; pale if it does not fit into memory.

    Args:
        choices: The layouts, one bar each, from the top.
    """
    bars = [
        Bar(
            one.title,
            [one.steps * seconds / SECONDS_PER_HOUR for seconds in _seconds(one)],
            f"{one.hours:.0f} h, {one.bytes / GIB:.0f} GiB",
            "" if one.fits else "over",
        )
        for one in choices
    ]
    return alone(bar_chart("Hours by parallel layout", PARTS, bars, "h"), _STYLE)


def _seconds(one: Choice) -> tuple[float, ...]:
    named = (one.step.compute, one.step.tensor_communication, one.step.bubble)
    return (*named, one.step.total - sum(named))
