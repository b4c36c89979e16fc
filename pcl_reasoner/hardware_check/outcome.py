"""Setting and outcome of a part, and comparisons of numbers within a tolerance."""

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
    """The input of a part.

    Args:
        device: ``CPU`` or ``Ascend``.
        count: Number of devices that MindSpore sees.
        figures: The CPU's figures for this part; None while they are being made.
    """

    device: str
    count: int
    figures: dict[str, Any] | None = None

    @property
    def precision(self) -> str:
        """Compute type of a model; attention on an Ascend device has no float32."""
        return "float32" if self.device == "CPU" else "bfloat16"

    @staticmethod
    def read(folder: Path) -> Setting:
        """Read the setting of a part's process."""
        return Setting(**json.loads((folder / SETTING).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Check:
    """One comparison; numbers that are not finite are strings, because JSON has none.

    Args:
        name: The compared quantity.
        got: The device's value; for an array, the value with the largest difference.
        expected: The expected value at the same index.
        error: Largest difference, as a share of the largest expected magnitude unless that is 0.
        tolerance: Largest error that counts as rounding; 0 if both must be equal.
        ok: Whether the error is within the tolerance.
    """

    name: str
    got: float | str
    expected: float | str
    error: float | str
    tolerance: float
    ok: bool


@dataclass
class Outcome:
    """The result of a part.

    Args:
        checks: Its comparisons.
        measured: Times in seconds, memory in bytes, counts.
        figures: Its values, which become the figures if a CPU makes them; None without figures.
    """

    checks: list[Check] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] | None = None

    def write(self, folder: Path) -> None:
        """Write the outcome for the process that started the part."""
        (folder / OUTCOME).write_text(json.dumps(asdict(self)), encoding="utf-8")


def compare(
    name: str, got: float | NDArray[Any], expected: float | NDArray[Any], tolerance: float
) -> Check:
    """Compare numbers with expected numbers.

    Args:
        name: The compared quantity.
        got: Number or array.
        expected: Number or array of the same shape.
        tolerance: Largest allowed error, as a share of the largest expected magnitude.
    """
    found, wanted = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    if found.shape != wanted.shape:
        shapes = str(found.shape), str(wanted.shape)
        return Check(name, *shapes, "different shapes", tolerance, False)
    off = np.abs(found - wanted)
    # A difference that is not finite counts as the largest.
    index = np.unravel_index(int(np.argmax(np.where(np.isfinite(off), off, np.inf))), off.shape)
    largest = float(np.abs(wanted).max())
    error = float(off[index]) / (largest or 1.0)
    numbers = (_number(found[index]), _number(wanted[index]), _number(error))
    return Check(name, *numbers, tolerance, bool(error <= tolerance))


def against_figures(
    found: Mapping[str, Any], figures: Mapping[str, Any] | None, tolerances: Mapping[str, float]
) -> list[Check]:
    """Compare a part's values with the CPU's figures, name by name.

    Args:
        found: Name -> number, list of numbers, or string.
        figures: The same names. A missing name gives a failed check; None (the figures are being
            made) gives no checks.
        tolerances: Name -> tolerance, looked up by the part after the last dot of a name.
    """
    if figures is None:
        return []
    return [
        check
        for name, value in found.items()
        for check in _checks(name, value, figures.get(name), tolerances)
    ]


def _checks(name: str, value: Any, expected: Any, tolerances: Mapping[str, float]) -> list[Check]:
    """Compare a value; a list has one number per step, and each step gets its own check."""
    if expected is None:
        return [Check(name, str(value), "no figure", "nothing to compare", 0.0, False)]
    if isinstance(value, str):
        equal = value == expected
        return [Check(name, value, expected, 0.0 if equal else "different", 0.0, equal)]
    tolerance = tolerances[name.rpartition(".")[2]]
    if not isinstance(value, Sequence):
        return [compare(name, value, expected, tolerance)]
    if len(value) != len(expected):
        return [Check(name, str(len(value)), str(len(expected)), "different lengths", 0.0, False)]
    return [
        compare(f"{name}, step {step}", one, other, tolerance)
        for step, (one, other) in enumerate(zip(value, expected, strict=True), 1)
    ]


def _number(value: Any) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else str(number)
