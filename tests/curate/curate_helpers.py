"""Small Nemotron sources, and readers of what the stages write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = list[dict[str, Any]]


def record(problem: str, cot: str = "so", answer: Any = "42", **others: Any) -> dict[str, Any]:
    """One Nemotron record."""
    turns = [{"role": "user", "content": problem}, {"role": "assistant", "content": cot}]
    metadata = json.dumps({"expected_answer": answer, "problem_source": "test"})
    return {"messages": turns, "metadata": metadata, **others}


def write(path: Path, rows: Rows) -> Path:
    """Write dictionaries as Parquet; pyarrow finds the columns' types."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def read(folder: Path) -> Rows:
    """All rows of a folder's parts, in order."""
    parts = sorted(folder.glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def payload(folder: Path) -> dict[str, bytes]:
    """Every file's bytes by its relative path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
