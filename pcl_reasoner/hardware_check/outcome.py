"""What a part is told, and what it found: got against expected, within a tolerance or not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SETTING, OUTCOME = "setting.json", "outcome.json"


@dataclass(frozen=True)
class Setting:
    """What a part is told.

    Args:
        device: ``CPU`` or ``Ascend``.
        count: Devices that MindSpore sees.
        figures: The CPU's figures for this part; None where they are being made.
    """

    device: str
    count: int
    figures: dict[str, Any] | None = None

    @property
    def precision(self) -> str:
        """What a model computes in: attention on an Ascend device has no float32."""
        return "float32" if self.device == "CPU" else "bfloat16"

    def write(self, folder: Path) -> None:
        """Leave it for the part's process."""
        (folder / SETTING).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Setting:
        """Read what ``write`` left."""
        return Setting(**json.loads((folder / SETTING).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Check:
    """One comparison; numbers that are not finite are words, as JSON has none.

    Args:
        name: What is compared.
        got: What the device gave; of an array, where it is furthest off.
        expected: What is expected at that place.
        error: Largest difference, as a share of the largest expected magnitude if that is not 0.
        tolerance: Largest error that is taken for rounding; 0 where both must be the same.
        ok: Whether it is.
    """

    name: str
    got: float | str
    expected: float | str
    error: float | str
    tolerance: float
    ok: bool


@dataclass
class Outcome:
    """What a part found.

    Args:
        checks: Its comparisons.
        measured: Times in seconds, memory in bytes, counts.
        figures: What the CPU's figures for this part are made of.
    """

    checks: list[Check] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] | None = None

    def write(self, folder: Path) -> None:
        """Leave it for the process that asked."""
        (folder / OUTCOME).write_text(json.dumps(asdict(self)), encoding="utf-8")


def compare(
    name: str, got: float | NDArray[Any], expected: float | NDArray[Any], tolerance: float
) -> Check:
    """Hold numbers against numbers.

    Args:
        name: What is compared.
        got: Number or array.
        expected: The same shape.
        tolerance: As a share of the largest expected magnitude.
    """
    found, wanted = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    if found.shape != wanted.shape:
        words = str(found.shape), str(wanted.shape)
        return Check(name, *words, "another shape", tolerance, False)
    off = np.abs(found - wanted)
    # What is not finite is further off than anything that is.
    place = np.unravel_index(int(np.argmax(np.where(np.isfinite(off), off, np.inf))), off.shape)
    largest = float(np.abs(wanted).max())
    error = float(off[place]) / (largest or 1.0)
    numbers = (_number(found[place]), _number(wanted[place]), _number(error))
    return Check(name, *numbers, tolerance, bool(error <= tolerance))


def same(name: str, got: str, expected: str) -> Check:
    """Hold a word, such as a hash, against another."""
    equal = got == expected
    return Check(name, got, expected, 0.0 if equal else "not the same", 0.0, equal)


def against_figures(
    found: Mapping[str, Any], figures: Mapping[str, Any] | None, tolerances: Mapping[str, float]
) -> list[Check]:
    """Hold what was found against the CPU's figures, name by name.

    Args:
        found: Name -> number, list of numbers, or word.
        figures: The same names; a name left out makes a check that fails, and None (figures are
            being made) makes none.
        tolerances: Name -> tolerance; the last word of a dotted name counts.
    """
    checks: list[Check] = []
    if figures is None:
        return checks
    for name, value in found.items():
        expected = figures.get(name)
        if expected is None:
            checks.append(Check(name, str(value), "no figure", "nothing to compare", 0.0, False))
        elif isinstance(value, str):
            checks.append(same(name, value, expected))
        else:
            tolerance = tolerances[name.rpartition(".")[2]]
            checks += _each(name, value, expected, tolerance)
    return checks


def _each(name: str, value: Any, expected: Any, tolerance: float) -> list[Check]:
    """A list is a number a step: each is compared for itself, so that the first one shows."""
    if not isinstance(value, Sequence):
        return [compare(name, value, expected, tolerance)]
    if len(value) != len(expected):
        return [Check(name, str(len(value)), str(len(expected)), "another number", 0.0, False)]
    return [
        compare(f"{name}, step {step}", one, other, tolerance)
        for step, (one, other) in enumerate(zip(value, expected, strict=True), 1)
    ]


def _number(value: Any) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else str(number)
