"""Input (Setting), comparisons (Check) and result (Outcome) of a part of the hardware check."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Setting:
    """The input of a part.

    Args:
        device: ``CPU`` or ``Ascend``.
        figures: This part's reference values from a CPU; None in the run that computes them.
    """

    device: str
    figures: dict[str, Any] | None = None

    @property
    def precision(self) -> str:
        """The data type in which models compute; attention on Ascend does not support float32."""
        return "float32" if self.device == "CPU" else "bfloat16"


@dataclass(frozen=True)
class Check:
    """The result of one comparison; NaN and infinity are strings, because JSON has no such numbers.

    Args:
        name: The compared quantity.
        got: The device's value; for an array, the value with the largest difference.
        expected: The expected value at the same index.
        error: Largest difference, divided by the largest expected magnitude unless that is 0.
        tolerance: Largest allowed error; 0 if the two values must be equal.
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
        checks: The part's comparisons.
        measured: Times in seconds, memory in bytes, counts.
        figures: Values that a CPU run saves as reference values; None if the part has none.
    """

    checks: list[Check] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] | None = None


def compare(
    name: str, got: float | NDArray[Any], expected: float | NDArray[Any], tolerance: float
) -> Check:
    """Compare a number or an array with its expected value.

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
    """Compare each value of a part with the CPU's reference value of the same name.

    Args:
        found: Name -> number, list of numbers, or string.
        figures: Name -> reference value. None in the run that computes the reference values.
        tolerances: Largest allowed errors, by the end of a name: ``loss`` for ``dense mask.loss``.

    Returns:
        One check per number or string; it fails if the reference value is missing. Empty if
        ``figures`` is None.
    """
    if figures is None:
        return []
    return [
        check
        for name, value in found.items()
        for check in _checks(name, value, figures.get(name), tolerances)
    ]


def _checks(name: str, value: Any, expected: Any, tolerances: Mapping[str, float]) -> list[Check]:
    """Return the checks of one value: one per training step if it is a list, otherwise one."""
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
