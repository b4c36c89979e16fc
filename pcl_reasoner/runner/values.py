"""Runs one stage from Python, on rows in memory.

problems = [{"problem_id": "a", "problem": "1 + 1?", "ground_truth": "2"}]
responses = [{"problem_id": "a", "sample_index": 0, "response": "… \\\\boxed{2}"}]
call("grade", {"problems": problems, "responses": responses}).table("verdicts")
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pcl_reasoner.core import schemas
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.core.validation import validated
from pcl_reasoner.stages import STAGES, stage_hint

Rows = Sequence[Mapping[str, Any]]

_FILES = {
    "rows": "rows/part-00000.parquet",
    "problems": "clean.parquet",
    "responses": "responses/part-00000.parquet",
    "verdicts": "verdicts.parquet",
    "benchmark": "questions.jsonl",
    "lengths.rows": "partial/part-00000.parquet",
    "contamination.problems": "problems.parquet",
    "tokenize.responses": "responses.parquet",
}
"""``role`` or ``stage.role`` -> the file in the input's folder to which rows are written."""
_SCHEMAS = {
    "rows": [schemas.ROWS, schemas.PASS_COUNTS, schemas.LENGTHS],
    "problems": [schemas.PROBLEMS],
    "responses": [schemas.RESPONSES, schemas.REWARDED],
    "verdicts": [schemas.VERDICTS],
}
"""Role -> schemas of allowed columns; only the first schema's columns are always written."""


@dataclass(frozen=True)
class Result:
    """The output of a stage. A temporary folder is deleted when the result is no longer used.

    Args:
        folder: The stage's files.
        counts: Numbers of records read, kept and dropped.
        warnings: The stage's warnings.
    """

    folder: Path
    counts: Counts
    warnings: list[str]
    _temporary: TemporaryDirectory[str] | None

    def table(self, name: str) -> pa.Table:
        """Read a Parquet file or a folder of them, e.g. ``verdicts`` or ``responses``."""
        file = self.folder / f"{name}.parquet"
        return ds.dataset(
            file if file.exists() else self.folder / name, format="parquet"
        ).to_table()


def call(
    stage: str,
    inputs: Mapping[str, Rows | Result | Path | str],
    *,
    output: Path | None = None,
    placement: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """Run one stage outside a recipe, and return its output.

    Args:
        stage: Name of the stage, e.g. ``grade``.
        inputs: Role -> rows, the result of another call, or the path of a file or folder.
        output: Folder for the stage's files; None: a temporary folder.
        placement: Keys of a launch file's ``placement``.
        settings: Keys and values of the stage's configuration.

    Raises:
        InputError: The stage, a role or a key is unknown, or a value is wrong.
        StageError: The stage failed.
    """
    if stage not in STAGES:
        raise InputError(f"{stage}: no such stage.{stage_hint(stage, STAGES)}")
    config = validated(STAGES[stage].config_class(), settings, stage)
    temporary = TemporaryDirectory(prefix=f"pclr_{stage}_")
    work = Path(temporary.name)
    folder = output or work / "output"
    folder.mkdir(parents=True, exist_ok=True)
    given = {role: _folder(stage, role, value, work) for role, value in inputs.items()}
    context = StageContext(stage, work / "quarantined.jsonl", Placement(**(placement or {})))
    counts = STAGES[stage].function()(config, given, folder, context)
    return Result(folder, counts, context.warnings, None if output else temporary)


def _folder(stage: str, role: str, value: Rows | Result | Path | str, work: Path) -> Path:
    """The folder of an input; rows are written to a temporary one."""
    roles = [name.rstrip("?") for name in STAGES[stage].inputs]
    if role not in roles:
        raise InputError(f"{stage}: no input {role!r}.{nearest(role, roles)}")
    if isinstance(value, Result):
        return value.folder
    if isinstance(value, Path | str):
        return Path(value)
    name = _FILES.get(f"{stage}.{role}") or _FILES.get(role)
    if name is None:
        raise InputError(f"{stage}: {role} cannot be given as rows: give a path or a result.")
    file = work / role / name
    file.parent.mkdir(parents=True)
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in value), encoding="utf-8")
    else:
        pq.write_table(_table(role, value), file)
    return work / role


def _table(role: str, rows: Rows) -> pa.Table:
    """Rows as a table, which always has the columns of the role's first schema."""
    first, *further = _SCHEMAS[role]
    named = {name for row in rows for name in row}
    fields = [*first, *(field for schema in further for field in schema if field.name in named)]
    if unknown := named - {field.name for field in fields}:
        raise InputError(f"{role}: unknown columns {sorted(unknown)}")
    return pa.Table.from_pylist(list(rows), pa.schema(fields))
