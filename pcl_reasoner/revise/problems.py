"""Read the problems of an artifact, and write them with changed columns.

A row of clean.parquet or problems.parquet; an artifact without ``kind`` has only mathematics:

    problem_id 9f0c…, problem "What is 6·7?", ground_truth "42", kind math, pass_rate 0.75, …

Only the short columns are held in memory. The tests of a code problem can have megabytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.curate.parts import DEFAULTS, PROBLEM_FILES

CLEAN = PROBLEM_FILES[0]
DEFAULT_KIND = DEFAULTS["kind"]
TWICE = (
    "occurs twice, so it has no single ground truth and no single tests. The stages `unique` and "
    "`mix` keep one row per problem: run one of them first."
)
"""The end of an error about a problem with two rows."""


@dataclass(frozen=True)
class Problem:
    """A problem without its other columns; ``ground_truth`` may be empty."""

    problem_id: str
    problem: str
    ground_truth: str
    kind: str = DEFAULT_KIND


def column_names(file: Path, needed: Sequence[str] = ()) -> list[str]:
    """Return the names of a Parquet file's columns.

    Raises:
        StageError: The file cannot be read or lacks a needed column.
    """
    from pcl_reasoner.curate.parts import open_parquet

    names: list[str] = open_parquet(file).schema_arrow.names
    if missing := [name for name in needed if name not in names]:
        raise StageError(
            f"{file}: no column {', '.join(missing)}; got {', '.join(names)}. "
            "Check which stage the recipe reads here."
        )
    return names


def read_problems(file: Path) -> list[Problem]:
    """Read the problems in file order.

    Raises:
        StageError: The file cannot be read, lacks a column, or has a problem twice.
    """
    from pcl_reasoner.curate.parts import record_batches

    needed = ["problem_id", "problem", "ground_truth"]
    kinds = ["kind"] if "kind" in column_names(file, needed) else []
    found: dict[str, Problem] = {}
    for batch in record_batches(file, [*needed, *kinds]):
        for row in batch.to_pylist():
            name, kind = row["problem_id"], row.get("kind") or DEFAULT_KIND
            if name in found:
                raise StageError(f"{file}: problem {name} {TWICE}")
            found[name] = Problem(name, row["problem"] or "", row["ground_truth"] or "", kind)
    return list(found.values())


def write_problems(
    source: Path,
    target: Path,
    columns: Mapping[str, tuple[str, Mapping[str, Any]]],
    kept: Collection[str],
) -> None:
    """Copy the kept problems in their order, with changed and added columns.

    Args:
        source: The file with the problems.
        target: The new file.
        columns: Column -> (its type, problem_id -> value). A column of the source is replaced; a
            new one is appended. A problem without a value has null.
        kept: The problem_ids to copy.
    """
    import pyarrow as pa

    from pcl_reasoner.curate.part_writer import atomic_part
    from pcl_reasoner.curate.parts import open_parquet, record_batches

    types = {field.name: field.type for field in open_parquet(source).schema_arrow}
    schema = pa.schema({**types, **{name: alias for name, (alias, _) in columns.items()}})
    with atomic_part(target, schema) as write:
        for batch in record_batches(source):
            names = batch["problem_id"].to_pylist()
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            for column, (alias, values) in columns.items():
                arrays[column] = pa.array([values.get(name) for name in names], alias)
            changed = pa.RecordBatch.from_pydict(arrays, schema=schema)
            write(changed.filter(pa.array([name in kept for name in names], pa.bool_())))
