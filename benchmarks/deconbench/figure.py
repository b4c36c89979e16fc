"""Draws what each checker finds of every class, with the 95 % interval, as a PNG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from deconbench.cases import NEIGHBOURS, NOT_COUNTED, WRITTEN, Case
from pcl_reasoner.verifiers.shares import wilson

BY_RULES = "disguises by rules"
CLASSES = (*(kind for kind in WRITTEN if kind not in NOT_COUNTED), BY_RULES, NEIGHBOURS)


def counted(made: Sequence[Case], found: Sequence[bool]) -> dict[str, tuple[int, int]]:
    """Class -> flagged, of so many; all disguises by rules are one class."""
    result = dict.fromkeys(CLASSES, (0, 0))
    for case, flagged in zip(made, found, strict=True):
        kind = case.kind if case.kind in CLASSES else BY_RULES
        if case.kind not in NOT_COUNTED:
            hits, total = result[kind]
            result[kind] = (hits + flagged, total + 1)
    return result


def draw(made: Sequence[Case], flags: Mapping[str, Sequence[bool]], target: Path) -> None:
    """Draw a bar per class and checker.

    Args:
        made: The cases.
        flags: Checker -> whether it flags each case.
        target: The PNG file.
    """
    figure = Figure(figsize=(9.5, 5.5), layout="constrained")
    axes = figure.add_subplot()
    height = 0.8 / len(flags)
    for number, (name, found) in enumerate(flags.items()):
        shares = counted(made, found)
        places = [index + height * number for index in range(len(CLASSES))]
        widths = [hits / total for hits, total in shares.values()]
        ends = [wilson(*one) for one in shares.values()]
        reach = [
            [max(0.0, width - low) for width, (low, _) in zip(widths, ends, strict=True)],
            [max(0.0, high - width) for width, (_, high) in zip(widths, ends, strict=True)],
        ]
        axes.barh(places, widths, height, xerr=reach, label=name, error_kw={"linewidth": 0.7})
    labels = [f"{kind}\n({'false alarms' if kind == NEIGHBOURS else 'found'})" for kind in CLASSES]
    axes.set_yticks([index + 0.4 - height / 2 for index in range(len(CLASSES))], labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share of the texts that are flagged, with the 95 % interval")
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(str(target))
