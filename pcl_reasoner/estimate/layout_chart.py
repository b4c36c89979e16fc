"""Draws the hours of each layout as a bar, in a self-contained SVG file."""

from collections.abc import Sequence

from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR, Choice
from pcl_reasoner.estimate.time_estimate import StepTime
from pcl_reasoner.estimate.training_size import GIB
from pcl_reasoner.report.charts import Bar, alone, bar_chart

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
            choice.title,
            [choice.steps * seconds / SECONDS_PER_HOUR for seconds in _seconds(choice.step)],
            f"{choice.hours:.0f} h, {choice.bytes / GIB:.0f} GiB",
            "" if choice.fits else "over",
        )
        for choice in choices
    ]
    return alone(bar_chart("Hours by parallel layout", PARTS, bars, "h"), _STYLE)


def _seconds(step: StepTime) -> tuple[float, ...]:
    named = (step.compute, step.tensor_communication, step.bubble)
    return (*named, step.total - sum(named))
