"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from pcl_reasoner.scene.graph import Node, Scene


@dataclass(frozen=True)
class Found:
    """One problem.

    Args:
        nodes: The stages that it concerns. It is reported if one of them will run.
        text: Where, what, got against expected, and what to do.
    """

    nodes: tuple[Node, ...]
    text: str


@dataclass(frozen=True)
class Rule:
    """A rule: a function that yields what breaks it. Its first line says what it finds.

    Args:
        level: ``error``: nothing is run. ``warning``: it is only reported.
        check: The function.
        when: ``always``; ``plan``: for the stages that will run, not by ``validate``; ``run``: only
            at the start of a run, on the machine that runs it.
    """

    level: Literal["error", "warning"]
    check: Callable[[Scene], Iterator[Found]]
    when: Literal["always", "plan", "run"] = "always"
