"""Rows -> batches of convert's output, with their ids.

A row of rows/part-00000.parquet:

    row_id          "data/train-00000.parquet:17"      source file and 0-based row in it
    problem_id      "4cf2e0cd1c9b2b5f"                 equal for equal problems
    problem, cot, ground_truth, problem_source, extra, kind, checks        see formats/records.py
"""

from collections.abc import Sequence
from dataclasses import fields

import pyarrow as pa

from pcl_reasoner.core.schemas import ROWS
from pcl_reasoner.curate import problem_id
from pcl_reasoner.formats.records import Row


def to_batch(file: str, rows: Sequence[tuple[int, Row]]) -> pa.RecordBatch:
    """Assign ids to rows, and return them as a batch.

    Args:
        file: Path of the source file, relative to the source.
        rows: Pairs (0-based row or line in that file, row).
    """
    ids = {
        "row_id": [f"{file}:{number}" for number, _ in rows],
        "problem_id": [problem_id(row.problem) for _, row in rows],
    }
    texts = {field.name: [getattr(row, field.name) for _, row in rows] for field in fields(Row)}
    return pa.RecordBatch.from_pydict({**ids, **texts}, schema=ROWS)
