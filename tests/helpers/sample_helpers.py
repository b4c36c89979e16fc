"""A model folder small enough to sample in a test, and problems for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate import problem_id
from pcl_reasoner.synthetic.base_model import write_model_folder

PROBLEMS = ["Tom has 3 apples.", "Mia gets 12 shells and loses 5. How many now?", "7 + 1?"]


def model_folder(folder: Path) -> Path:
    write_model_folder(folder, PROBLEMS * 4, vocab_size=300, hidden=64, layers=2, seed=1)
    return folder


def problems_folder(folder: Path, texts: list[str] = PROBLEMS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"problem_id": problem_id(text), "problem": text, "ground_truth": "8"} for text in texts
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "clean.parquet")
    return folder


def context(folder: Path, **placement: Any) -> StageContext:
    folder.mkdir(parents=True, exist_ok=True)
    return StageContext(
        name="sample", quarantined=folder / "quarantined.jsonl", placement=Placement(**placement)
    )


def rows_of(output: Path) -> list[dict[str, Any]]:
    """The responses that a stage wrote."""
    rows: list[dict[str, Any]] = pq.read_table(output / "responses/part-00000.parquet").to_pylist()
    return rows
