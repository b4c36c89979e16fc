"""The cases of DeconBench: a text, its class, and the question that it is a copy of, if it is one.

    Case("al-01", "translation", "设 r, s, t 为方程 …", copy=True)
    Case("al-01", "near neighbour", "Find all real roots of x³ − 6x² + 12x − 8 = 0.", copy=False)

The questions are our own (problems/*.yaml), so they can be published. A question and all that is
made of it are in the same half. Odd numbers are for tuning, even ones for reported figures.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import contamination_quality as rules
import yaml

from pcl_reasoner.contamination.fingerprints import Question

PROBLEMS = Path(__file__).parent / "problems"
WRITTEN = {
    "deep paraphrase": "restated",
    "retold": "paraphrase",
    "translation": "chinese",
    "solution": "solution",
    "program": "program",
    "other numbers": "variant",
}
"""Class of the rewrites by hand -> field of a problem."""
NEIGHBOURS = "near neighbour"
SWAPPED = "paraphrase of another"
"""The control: the benchmark has the neighbour, and the paraphrase belongs to the original."""
NOT_COUNTED = ("other numbers", "all numbers changed", "one number changed")
"""Classes that are reported, but are no copies: the answer is another one."""


@dataclass(frozen=True)
class Case:
    """One text to check.

    Args:
        source: Id of the problem that it belongs to.
        kind: Its class.
        text: The text.
        copy: True if it gives the question away.
    """

    source: str
    kind: str
    text: str
    copy: bool

    @property
    def half(self) -> str:
        """``tune`` or ``report``."""
        return half_of(self.source)


def half_of(source: str) -> str:
    """The half that a problem and all its rewrites belong to."""
    return "tune" if int(source.rpartition("-")[2]) % 2 else "report"


def problems() -> list[dict[str, Any]]:
    """The problems with their rewrites."""
    restated = yaml.safe_load((PROBLEMS / "restated.yml").read_text(encoding="utf-8"))
    files = sorted(PROBLEMS.glob("*.yaml"))
    found = [one for file in files for one in yaml.safe_load(file.read_text(encoding="utf-8"))]
    return [one | {"restated": restated[one["id"]]} for one in found]


def questions(found: list[dict[str, Any]]) -> list[Question]:
    """The problems as a benchmark."""
    return [
        Question("deconbench", one["id"], one["problem"], answer=one["answer"]) for one in found
    ]


def cases(found: list[dict[str, Any]]) -> list[Case]:
    """All cases: rewrites by hand, disguises by rules, and neighbours."""
    made = [
        Case(one["id"], kind, one[field], kind not in NOT_COUNTED)
        for one in found
        for kind, field in WRITTEN.items()
    ]
    made += [
        Case(one["id"], NEIGHBOURS, text, False) for one in found for text in one["neighbours"]
    ]
    for kind, disguise in disguises(random.Random(0)).items():
        made += [
            Case(one["id"], kind, disguise(one["problem"]), kind not in NOT_COUNTED)
            for one in found
        ]
    return made


def swapped(found: list[dict[str, Any]]) -> list[tuple[list[Case], list[Question]]]:
    """The control: deep paraphrases, and benchmarks of neighbours that they are no copies of.

    The first benchmark has the first neighbour of each problem, the second one the second, and so
    on. A checker that takes the style of a paraphrase for a copy is shown by its flags here.

    Args:
        found: Problems with the same number of neighbours each.
    """
    texts = [Case(one["id"], SWAPPED, one["restated"], False) for one in found]
    turns = zip(*(one["neighbours"] for one in found), strict=True)
    return [
        (
            texts,
            [
                Question("neighbours", one["id"], text)
                for one, text in zip(found, turn, strict=True)
            ],
        )
        for turn in turns
    ]


def disguises(rng: random.Random) -> dict[str, Any]:
    """The fifteen disguises by rules, another line width, and paragraphs in between."""
    return {
        **rules.disguises(rng),
        "lines of 40 characters": lambda text: _wrapped(text, 40),
        "between paragraphs": lambda text: (
            f"{rules.filler(rng, 80)}\n\n{text}\n\n{rules.filler(rng, 80)}"
        ),
    }


def _wrapped(text: str, width: int) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + len(word) >= width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])
