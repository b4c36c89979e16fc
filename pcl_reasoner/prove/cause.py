"""Finds the suspect with which the checkpoint's pass gives the server's numbers.

    Tried("rotary base 10000, …", Difference(mean=3e-6, …), reproduces=True)

Suspects are tried in groups. The search ends with the first group in which one reproduces.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.prove.passes import Passes
from pcl_reasoner.prove.suspects import EMBEDDING, Suspect, Tensors
from pcl_reasoner.recheck.difference import Difference, Values, difference
from pcl_reasoner.recheck.limits import Limits
from pcl_reasoner.weights.conversion import shape_in
from pcl_reasoner.weights.names import match, mindformers_name
from pcl_reasoner.weights.slices import open_checkpoint
from pcl_reasoner.weights.stream import Style

EXPLAINS = 4
"""A suspect must also make the mean difference this many times smaller: noise alone does not."""
SHOWN = 4
"""Suspects that a message shows."""


@dataclass(frozen=True)
class Tried:
    """A suspect, and how far its pass is from the server's numbers."""

    suspect: Suspect
    difference: Difference
    reproduces: bool

    def as_json(self) -> dict[str, Any]:
        """Return the figures for the file of a failed proof."""
        figures = {**self.difference.as_json(), "by_position": None}
        return {"suspect": self.suspect.name, "reproduces": self.reproduces, **figures}


def other_weights(policy: Path, earlier: Mapping[str, Path]) -> dict[str, Tensors]:
    """Open the other weights that a server may have, by MindFormers' names.

    Args:
        policy: The Hugging Face folder that training started from.
        earlier: Name -> a Hugging Face folder or a checkpoint, e.g. of an earlier step.

    Raises:
        StageError: A folder has not the policy's tensors.
    """
    folders = {"the policy before training": policy, **earlier}
    shape = shape_in(policy)
    found: dict[str, Tensors] = {}
    for name, folder in folders.items():
        tensors = open_checkpoint(folder)
        style: Style = "mindformers" if EMBEDDING in tensors else "huggingface"
        names = match(tensors, shape, style, folder).names
        found[name] = {mindformers_name(one): tensors[stored] for one, stored in names.items()}
    return found


def find_cause(
    passes: Passes,
    theirs: Values,
    trained: Difference,
    limits: Limits,
    groups: Iterable[list[Suspect]],
) -> list[Tried]:
    """Try the suspects; return those that were tried, the nearest first.

    Args:
        passes: Our passes.
        theirs: The server's log-probs.
        trained: The difference of the checkpoint as it was trained.
        limits: The largest differences.
        groups: The suspects.
    """
    tried: list[Tried] = []
    for group in groups:
        for suspect, ours in zip(group, passes.values(group), strict=True):
            found = difference(theirs, ours)
            explains = found.within(limits) and found.mean * EXPLAINS <= trained.mean
            tried.append(Tried(suspect, found, explains))
        if any(one.reproduces for one in tried):
            break
    return sorted(tried, key=lambda one: (not one.reproduces, one.difference.mean))
