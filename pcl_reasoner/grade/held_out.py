"""Held-out problems, which the policy answers from time to time during training.

{"id": "math-0001", "problem": "At the farm, Ben has …", "answer": "8"}
{"id": "code-0001", "problem": "Write f. …", "answer": "", "kind": "code", "checks": "{…}"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError

_KEYS = {"id": ("id", "problem_id"), "problem": ("problem",), "answer": ("answer", "ground_truth")}


HeldOut = dict[str, str]
"""``id``, ``problem`` and ``answer``; if it is not mathematics, also ``kind`` and ``checks``."""


def read_problems(path: Path, limit: int) -> list[HeldOut]:
    """Read the first problems of a stage's clean.parquet, or of a benchmark's JSON Lines file.

    Args:
        path: A folder with clean.parquet or with a .jsonl file, or the .jsonl file itself.
        limit: Largest number of problems.

    Raises:
        StageError: There are no problems, one of them lacks its id, text or answer, or its
            responses cannot be graded during training.
    """
    table = path / "clean.parquet"
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    files = [file for file in files if file.name != "quarantined.jsonl"]
    if table.is_file():
        import pyarrow.parquet as pq

        records = next(pq.ParquetFile(table).iter_batches(limit)).to_pylist()
    elif files:
        lines = files[0].read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines if line.strip()][:limit]
    else:
        raise StageError(
            f"{path}: no clean.parquet and no .jsonl. The input `probe` needs one of them."
        )
    if not records:
        raise StageError(f"{path}: no problems for the probe.")
    return [_problem(record, f"{path}, record {row}") for row, record in enumerate(records, 1)]


def _problem(record: Mapping[str, Any], where: str) -> HeldOut:
    found = {}
    checked = {name: record[name] for name in ("kind", "checks") if record.get(name)}
    if checked.get("kind", "math") != "math":
        found = {name: _text(value) for name, value in checked.items()}
    for name, keys in _KEYS.items():
        value = next((record[key] for key in keys if record.get(key) not in (None, "")), None)
        if value is None and name == "answer" and found.get("checks"):
            value = ""
        if value is None:
            raise StageError(f"{where}: no {' or '.join(keys)}; it has {', '.join(record)}.")
        found[name] = str(value)
    if "kind" in found:
        from pcl_reasoner.verifiers.small_batch import check_gradable

        checks = json.loads(found.get("checks") or "{}")
        check_gradable(f"{found['id']} ({where})", found["kind"], checks)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
