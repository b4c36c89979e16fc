"""Small Nemotron sources, and readers of what the stages write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate import problem_id
from pcl_reasoner.curate.convert import ConvertConfig, convert
from pcl_reasoner.curate.difficulty import DifficultyConfig, difficulty
from pcl_reasoner.curate.lengths import LengthsConfig, lengths
from pcl_reasoner.curate.unique import UniqueConfig, unique

NEMOTRON = ConvertConfig(format="nemotron")
CONVERSATIONS = ConvertConfig(format="conversations")
RAY = {"engine": "ray", "address": None, "workers": 2}

Folder = Callable[[str], Path]
Rows = list[dict[str, Any]]


def record(problem: str, cot: str = "so", answer: Any = "42", **others: Any) -> dict[str, Any]:
    """One Nemotron record."""
    turns = [{"role": "user", "content": problem}, {"role": "assistant", "content": cot}]
    metadata = json.dumps({"expected_answer": answer, "problem_source": "test"})
    return {"messages": turns, "metadata": metadata, **others}


def row(problem: str, number: int = 0, **others: Any) -> dict[str, Any]:
    """One row as the later stages read it."""
    return {
        "row_id": f"x:{number}",
        "problem_id": problem_id(problem),
        "problem": problem,
        "cot": "so",
        "ground_truth": "42",
        "problem_source": "test",
        "extra": "{}",
        **others,
    }


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


def talk(problem: str = "q", cot: str = "a", **others: Any) -> bytes:
    """One line of conversations, without its end."""
    turns = [{"from": "human", "value": problem}, {"from": "assistant", "value": cot}]
    return json.dumps({"conversations": turns, **others}).encode()


def walk(source: Path, runs: Path, tokenizer: Path, **placement: Any) -> Path:
    """All four stages; what is refused goes to apart.jsonl beside their folders."""
    folders = [runs / name for name in ("convert", "difficulty", "lengths", "unique")]
    for folder in folders:
        folder.mkdir(parents=True)
    context = StageContext("curate", runs / "apart.jsonl", Placement(**placement))
    convert(NEMOTRON, {"source": source}, folders[0], context)
    difficulty(DifficultyConfig(divisor=4), {"rows": folders[0]}, folders[1], context)
    inputs = {"rows": folders[1], "tokenizer": tokenizer}
    lengths(LengthsConfig(min_mean_tokens=6), inputs, folders[2], context)
    unique(UniqueConfig(), {"rows": folders[2]}, folders[3], context)
    return runs
