"""The report's input from one stage: its manifest and its small files.

A sample record, of a packing stage::

    StageRecord(recipe="v15_opg", name="pack", manifest={"stage": "pack", "counts": …, …},
                files={"accounting": {"rows": 510, "fill": 0.73}})
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StageRecord:
    """One stage before the report.

    Args:
        recipe: Name of the recipe that the stage belongs to.
        name: The stage's name in that recipe.
        manifest: Its manifest; None if the stage has not run.
        files: Content of its JSON and JSONL files, by file name without suffix; from its Parquet
            files ``verdict_counts`` and ``per_problem``.
    """

    recipe: str
    name: str
    manifest: Mapping[str, Any] | None
    files: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """``recipe/stage``."""
        return f"{self.recipe}/{self.name}"

    @property
    def type(self) -> str:
        """The stage's type, e.g. ``evaluate`` for ``evaluate_before``; its name if unknown."""
        return str((self.manifest or {}).get("stage", self.name))

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration with which it ran."""
        identity = (self.manifest or {}).get("identity") or {}
        found: Mapping[str, Any] = identity.get("config") or {}
        return found

    @property
    def counts(self) -> Mapping[str, Any]:
        """The counts of its records; empty if it has not run."""
        found: Mapping[str, Any] = (self.manifest or {}).get("counts") or {}
        return found


def finite(value: Any) -> float | None:
    """A number that can be drawn and averaged, or None for null, NaN, infinity and text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
