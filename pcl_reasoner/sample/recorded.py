"""Takes responses that are recorded already, e.g. a teacher's that was asked elsewhere.

    inputs:  {recorded: FOLDER}     FOLDER/responses/*.parquet, with the columns of ``sample``

Only the responses to the stage's problems are taken, with a sample_index below ``n``. What was not
recorded is counted. The files may have any order and hundreds of gigabytes, so the responses go
through a log, as those that are sampled: only their keys are in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pcl_reasoner.core.errors import StageError

if TYPE_CHECKING:
    from pcl_reasoner.core.schemas import Key
    from pcl_reasoner.inference.answer_log import AnswerLog, Record

_BATCH_ROWS = 64


def copy_recorded(folder: Path, names: Collection[str], n: int, log: AnswerLog) -> dict[str, int]:
    """Copy the recorded responses to some problems into a log.

    Args:
        folder: Has responses/*.parquet.
        names: The problem_ids.
        n: Responses per problem.
        log: Receives the responses; empty.

    Returns:
        Counts: ``taken``, ``not_recorded``, ``of_other_problems``, and ``beyond_n``: responses to
        these problems with a sample_index of ``n`` or more.

    Raises:
        StageError: There is no such file, it lacks columns or has them in other types, has a
            response twice or without a key, or has none that is taken.
    """
    left_out = Counter({"of_other_problems": 0, "beyond_n": 0})
    taken: dict[Key, Record] = {}
    for file in _files(folder):
        for row in _rows(file):
            key = (row["problem_id"], row["sample_index"])
            if key[0] not in names:
                left_out["of_other_problems"] += 1
            elif key[1] >= n:
                left_out["beyond_n"] += 1
            elif key in taken or key in log:
                raise StageError(
                    f"{file}: response {key[1]} of problem {key[0]} occurs twice. Remove one."
                )
            else:
                taken[key] = row
            if len(taken) == _BATCH_ROWS:
                log.add(taken.values())
                taken.clear()
    log.add(taken.values())
    if not len(log):
        raise StageError(
            f"{folder}: none of its {left_out.total()} responses is to one of the {len(names)} "
            f"problems with a sample_index below {n}. Check that problem_id is that of this "
            "project: a hash of the problem's text."
        )
    return {"taken": len(log), "not_recorded": len(names) * n - len(log), **left_out}


def _files(folder: Path) -> list[Path]:
    files = sorted((folder / "responses").glob("*.parquet"))
    if not files:
        raise StageError(f"{folder}: no responses/*.parquet. The input `recorded` needs them.")
    return files


def _rows(file: Path) -> Iterator[Record]:
    """Yield the rows of a file, which must have a problem_id and a sample_index from 0."""
    import pyarrow as pa

    from pcl_reasoner.core.schemas import RESPONSES
    from pcl_reasoner.curate.parts import fixed_batches, open_parquet

    present = open_parquet(file).schema_arrow.names
    absent = [name for name in RESPONSES.names if name not in present]
    if absent:
        raise StageError(
            f"{file}: no column {', '.join(absent)}; expected {', '.join(RESPONSES.names)}."
        )
    for batch in fixed_batches(file, _BATCH_ROWS, RESPONSES.names):
        try:
            table = pa.Table.from_batches([batch]).select(RESPONSES.names).cast(RESPONSES)
        except pa.ArrowException as error:
            types = ", ".join(f"{field.name} {field.type}" for field in RESPONSES)
            raise StageError(f"{file}: {error}; expected the columns {types}.") from error
        for row in table.to_pylist():
            if row["problem_id"] is None or row["sample_index"] is None or row["sample_index"] < 0:
                raise StageError(
                    f"{file}: a response has the problem_id {row['problem_id']} and the "
                    f"sample_index {row['sample_index']}, expected an id and a number from 0."
                )
            yield row
