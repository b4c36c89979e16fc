"""Stage ``mix``: several sets of problems become one, with a number of problems of each kind.

    problems   10 of math, 8 of code, 5 of chat        take  {chat: 2}
    ->         10 of math, 8 of code, 2 of chat        the same two for the same seed

Which problems are taken depends on the seed and their ids only: a set that grows keeps what it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeInt

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.curate.parts import (
    DEFAULTS,
    PROBLEM_FILES,
    open_parquet,
    problems_file,
    record_batches,
    with_columns,
)

if TYPE_CHECKING:
    import pyarrow as pa


class MixConfig(StageConfig):
    """How many problems of each kind are taken."""

    take: dict[Kind, NonNegativeInt] = Field(default_factory=dict)
    """Kind -> number of problems; of kinds that are not named, all are taken."""
    seed: int = 0
    """Seed of the choice."""


def mix(
    config: MixConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Put problems together; writes clean.parquet.

    Args:
        config: How many of each kind.
        inputs: ``problems``, or several ``problems.<name>``. Of a problem that occurs in several,
            the first is taken.
        output: Gets clean.parquet, with the columns that all inputs have. If only some inputs have
            ``kind`` and ``checks``, the problems of the others are of math and have no checks.
        context: Receives a warning if a kind has fewer problems than are to be taken, or a column
            is left out.

    Raises:
        StageError: An input has no problems, or no problem is taken.
    """
    from pcl_reasoner.stages import inputs_of

    files = [problems_file(folder) for folder in inputs_of(inputs, "problems").values()]
    schema = _schema(files, context)
    kinds, repeated = _kinds(files)
    taken = _taken(config, kinds, context)
    if not taken:
        raise StageError(
            f"{', '.join(map(str, files))}: no problem is taken of {len(kinds)}. Raise the numbers "
            "of take, or check the inputs."
        )
    _write(files, schema, taken, output / PROBLEM_FILES[0])
    read = len(kinds) + repeated
    dropped = {"repeated_problem": repeated, "not_taken": len(kinds) - len(taken)}
    found = Counter(kinds[name] for name in taken)
    return Counts(
        unit="problems",
        read=read,
        kept=len(taken),
        dropped={reason: number for reason, number in dropped.items() if number},
        info={"kinds": dict(sorted(found.items()))},
    )


def _schema(files: Sequence[Path], context: StageContext) -> pa.Schema:
    """Return the columns that all files have, and those of DEFAULTS that one of them has.

    Raises:
        StageError: A file has no column problem_id.
    """
    import pyarrow as pa

    schemas = [open_parquet(file).schema_arrow for file in files]
    for file, schema in zip(files, schemas, strict=True):
        if "problem_id" not in schema.names:
            raise StageError(f"{file}: no column problem_id. Check which stage the recipe reads.")
    found, left_out = {}, []
    for name in dict.fromkeys(name for schema in schemas for name in schema.names):
        types = [schema.field(name).type for schema in schemas if name in schema.names]
        if name in DEFAULTS:
            found[name] = pa.string()
        elif len(types) == len(files) and len(set(types)) == 1:
            found[name] = types[0]
        else:
            left_out.append(name)
    if left_out:
        context.warn(
            f"left out: {', '.join(left_out)}. A column is kept if all inputs have it with one "
            "type."
        )
    return pa.schema(found)


def _kinds(files: Sequence[Path]) -> tuple[dict[str, str], int]:
    """Return problem_id -> kind, and the number of problems that occur again."""
    found: dict[str, str] = {}
    repeated = 0
    for file in files:
        here = open_parquet(file).schema_arrow.names
        names = [name for name in ("problem_id", "kind") if name in here]
        for batch in record_batches(file, names):
            for row in batch.to_pylist():
                repeated += row["problem_id"] in found
                found.setdefault(row["problem_id"], row.get("kind") or DEFAULTS["kind"])
    return found, repeated


def _taken(config: MixConfig, kinds: Mapping[str, str], context: StageContext) -> set[str]:
    """Return the problems that are taken: of a kind with a number, those with the lowest hashes."""
    taken = {name for name, kind in kinds.items() if kind not in config.take}
    for kind, number in config.take.items():
        names = [name for name in kinds if kinds[name] == kind]
        if len(names) < number:
            context.warn(f"take: {number} problems of kind {kind}, but there are {len(names)}.")
        taken.update(sorted(names, key=lambda name: _rank(config.seed, name))[:number])
    return taken


def _write(files: Sequence[Path], schema: pa.Schema, taken: Collection[str], target: Path) -> None:
    """Write the first row of each problem that is taken."""
    import pyarrow as pa

    from pcl_reasoner.curate.part_writer import atomic_part

    left = set(taken)
    with atomic_part(target, schema) as write:
        for file in files:
            here = open_parquet(file).schema_arrow.names
            for batch in record_batches(file, [name for name in schema.names if name in here]):
                keep = []
                for name in batch["problem_id"].to_pylist():
                    keep.append(name in left)
                    left.discard(name)
                write(with_columns(batch.filter(pa.array(keep, pa.bool_())), schema))


def _rank(seed: int, name: str) -> str:
    return sha256(f"{seed} {name}".encode()).hexdigest()
