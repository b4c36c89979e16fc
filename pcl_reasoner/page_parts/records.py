"""The report's input from one stage: its manifest and its small files.

A sample record, of a packing stage::

    StageRecord(recipe="v15_opg", name="pack", manifest={"stage": "pack", "counts": …, …},
                files={"accounting": {"rows": 510, "fill": 0.73}})
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.curate.parts import reading

CHANGED = "The file was changed after its stage had finished; run that stage again with --from."
"""The last sentence of an error for a stage's file that cannot be read."""


@dataclass(frozen=True)
class StageRecord:
    """One stage whose results the report shows.

    Args:
        recipe: Name of the recipe that the stage belongs to.
        name: The stage's name in that recipe.
        manifest: The stage's manifest; None if the stage has not run.
        files: Content of the stage's JSON and JSONL files, by file name without suffix; also
            ``verdict_counts``, ``per_problem``, ``kinds`` and ``graded_by_kind``, which are
            computed from Parquet files, ``rl``, what the tables of on-policy training say, and
            ``revisions``, the examples in revisions.jsonl.
        folder: The stage's folder, relative to the report's.
    """

    recipe: str
    name: str
    manifest: Mapping[str, Any] | None
    files: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""

    @property
    def key(self) -> str:
        """``recipe/stage``."""
        return f"{self.recipe}/{self.name}"

    @property
    def type(self) -> str:
        """The stage's type, e.g. ``evaluate`` for ``evaluate_before``; if not run, its name."""
        return str((self.manifest or {}).get("stage", self.name))

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration with which the stage ran; empty if it has not run."""
        return ((self.manifest or {}).get("identity") or {}).get("config") or {}

    @property
    def counts(self) -> Mapping[str, Any]:
        """The counts in the stage's manifest; empty if it has not run."""
        return (self.manifest or {}).get("counts") or {}


def finite(value: Any) -> float | None:
    """Return a finite number as float; None for null, NaN, infinity, text and truth values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def read_rows(
    folder: Path | None, name: str, columns: list[str], problem_ids: list[str] | None = None
) -> list[dict[str, Any]]:
    """Read rows of a stage's Parquet table as dictionaries; empty if there is no such table.

    Args:
        folder: A stage's folder; None: there is no such stage.
        name: The Parquet file, or the folder of Parquet files, in it.
        columns: Columns to read, if the table has them.
        problem_ids: Read only the rows of these problems; None reads all rows.
    """
    from pyarrow import dataset

    # An empty list of problems ends here: Arrow could not infer its type.
    if folder is None or not (folder / name).exists() or problem_ids == []:
        return []
    row_filter = None if problem_ids is None else dataset.field("problem_id").isin(problem_ids)
    with reading(folder / name, "Parquet table"):
        table = dataset.dataset(folder / name, format="parquet")
        present = [column for column in columns if column in table.schema.names]
        found = table.to_table(columns=present, filter=row_filter)
        found.validate(full=True)
    return found.to_pylist()
