"""DeconBench: which rewrites of a question a checker finds, and which neighbours it takes for one.

    PYTHONPATH=benchmarks python -m deconbench [--half tune|report|both] [--checker NAME]
      [--figure PNG]

For each class: found of all, with the 95 % interval of Wilson. Precision is the share of copies
among all flagged texts of the classes that count. The last line is a control: the benchmark has a
near neighbour, and the text is the deep paraphrase of the original question.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deconbench.cases import (
    NEIGHBOURS,
    NOT_COUNTED,
    SWAPPED,
    WRITTEN,
    Case,
    cases,
    half_of,
    problems,
    questions,
    swapped,
)
from deconbench.checkers import CACHE, CHECKERS, Checker, two_stages
from deconbench.figure import draw
from deconbench.perfect_judge import judged
from pcl_reasoner.verifiers.shares import wilson

HALVES = ("tune", "report")
WITH_JUDGE, JUDGED = "ours + judge", "two stages"
"""Checkers with a judge that is always right: upper bounds of what their first stage finds."""


def table(made: Sequence[Case], flags: dict[str, list[bool]]) -> list[str]:
    """Lines of the table: a class each, then precision."""
    order = [*WRITTEN, NEIGHBOURS]
    kinds = sorted({case.kind for case in made}, key=lambda kind: (kind not in order, kind))
    lines = [f"{'':26}{'n':>5}" + "".join(f"{name:>18}" for name in flags)]
    for kind in kinds:
        places = [index for index, case in enumerate(made) if case.kind == kind]
        hits = [[found[index] for index in places] for found in flags.values()]
        lines.append(line(kind + " *" * (kind in NOT_COUNTED), hits))
    counted = [index for index, case in enumerate(made) if case.kind not in NOT_COUNTED]
    cells = []
    for found in flags.values():
        flagged = [index for index in counted if found[index]]
        right = sum(made[index].copy for index in flagged)
        cells.append(f"{right / max(1, len(flagged)):.1%}")
    lines.append(f"{'precision':31}" + "".join(f"{cell:>18}" for cell in cells))
    return lines


def line(kind: str, hits: Sequence[Sequence[bool]]) -> str:
    """A line of the table: a class, how many texts it has, and for each checker what it flags."""
    cells = []
    for found in hits:
        low, high = wilson(sum(found), len(found))
        cells.append(f"{sum(found):>6} [{low:4.0%}, {high:4.0%}]")
    return f"{kind:26}{len(hits[0]):>5}" + "".join(f"{cell:>18}" for cell in cells)


def checkers_for(made: Sequence[Case]) -> dict[str, Checker]:
    """The checkers; the judges among them know which of these cases are copies."""
    right = {case.text for case in made if case.copy}
    return CHECKERS | {
        WITH_JUDGE: lambda _, asked: judged(made, asked, Path(CACHE.name)),
        JUDGED: functools.partial(two_stages, copies=right),
    }


def control(found: list[dict[str, Any]], names: Sequence[str]) -> str:
    """The line of the control: what each checker flags, of all neighbours."""
    hits: dict[str, list[bool]] = {name: [] for name in names}
    for made, benchmark in swapped(found):
        checkers = checkers_for(made)
        for name in names:
            hits[name] += checkers[name]([case.text for case in made], benchmark)
    return line(SWAPPED, list(hits.values()))


def main() -> None:
    """Check and print."""
    parser = argparse.ArgumentParser(prog="deconbench", description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument(
        "--checker", choices=sorted([*CHECKERS, WITH_JUDGE, JUDGED]), action="append"
    )
    parser.add_argument("--figure", type=Path, metavar="PNG", help="also draw the shares")
    given = parser.parse_args()
    halves = HALVES if given.half == "both" else (given.half,)
    found = [one for one in problems() if half_of(one["id"]) in halves]
    made = cases(found)
    benchmark = questions(found)
    texts = [case.text for case in made]
    flags, seconds = {}, {}
    checkers = checkers_for(made)
    for name in given.checker or checkers:
        began = time.process_time()
        flags[name] = checkers[name](texts, benchmark)
        seconds[name] = time.process_time() - began
    print(f"{len(found)} questions, {len(made)} texts; half: {given.half}")
    print("\n".join([*table(made, flags), control(found, list(flags))]))
    print(
        "CPU-seconds per 100 000 texts"
        + "  ".join(
            f"  {name} {100_000 * took / len(texts):,.0f}" for name, took in seconds.items()
        )
    )
    if given.figure:
        draw(made, flags, given.figure)
    print("* reported, not counted: its answer is another one")


if __name__ == "__main__":
    main()
