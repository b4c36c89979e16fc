"""Held-out problems, which the policy answers from time to time during training.

{"id": "math-0001", "problem": "At the farm, Ben has …", "answer": "8"}
{"id": "code-0001", "problem": "Write f. …", "answer": "", "kind": "code", "checks": "{…}"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.json_lines import json_lines, parsed
from pcl_reasoner.curate.parts import fixed_batches

CLEAN = "clean.parquet"
_KEYS = {"id": ("id", "problem_id"), "problem": ("problem",), "answer": ("answer", "ground_truth")}


HeldOut = dict[str, str]
"""``id``, ``problem`` and ``answer``; if it is not mathematics, also ``kind`` and ``checks``."""


def read_problems(path: Path, limit: int, with_models: bool = False) -> list[HeldOut]:
    """Read the first problems of a stage's clean.parquet, or of a benchmark's JSON Lines file.

    Args:
        path: A folder with clean.parquet or with a .jsonl file, or the .jsonl file itself.
        limit: Largest number of problems.
        with_models: Whether responses can also be graded by a model.

    Raises:
        StageError: There are no problems, one of them lacks its id, text or answer, or its
            responses cannot be graded during training.
    """
    records = _records(path, limit)
    if not records:
        raise StageError(f"{path}: no problems. Give held-out problems, one JSON object per line.")
    found = [_problem(record, where, with_models) for where, record in records]
    # In a table equal rows of one problem are allowed, as in the problems to train on.
    if not (path / CLEAN).is_file():
        _check_ids(found, [where for where, _ in records])
    return found


def _check_ids(problems: Sequence[HeldOut], places: Sequence[str]) -> None:
    first: dict[str, str] = {}
    for problem, where in zip(problems, places, strict=True):
        name = problem["id"]
        if name in first:
            raise StageError(f"{where}: the id {name} occurs twice, first in {first[name]}.")
        first[name] = where


def _records(path: Path, limit: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the first records, each with its place."""
    table = path / CLEAN
    if table.is_file():
        batch = next(fixed_batches(table, limit), None)
        rows = [] if batch is None else batch.to_pylist()
        return [(f"{table}, row {number}", row) for number, row in enumerate(rows)]
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    files = [file for file in files if file.name != "quarantined.jsonl"]
    if not files:
        raise StageError(
            f"{path}: no clean.parquet and no .jsonl. Held-out problems come from one of them."
        )
    return [
        (where := f"{files[0]}, line {number}", _object(found, where))
        for number, found in islice(json_lines(files[0]), limit)
    ]


def _object(found: Any, where: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise StageError(
            f"{where}: got {type(found).__name__}, expected an object with id, problem and answer."
        )
    return found


def _problem(record: Mapping[str, Any], where: str, with_models: bool) -> HeldOut:
    found = {}
    checked = {name: record[name] for name in ("kind", "checks") if record.get(name)}
    if checked.get("kind", "math") != "math":
        found = {name: _text(value) for name, value in checked.items()}
    is_chat = with_models and found.get("kind") == "chat"
    for name, keys in _KEYS.items():
        value = next((record[key] for key in keys if record.get(key) not in (None, "")), None)
        if value is None and name == "answer" and (found.get("checks") or is_chat):
            value = ""
        if value is None:
            raise StageError(f"{where}: no {' or '.join(keys)}; it has {', '.join(record)}.")
        found[name] = str(value)
    if "kind" in found and not is_chat:
        from pcl_reasoner.verifiers.small_batch import check_gradable

        place = f"{where}, checks"
        checks = _object(parsed(found.get("checks") or "{}", place), place)
        check_gradable(f"{found['id']} ({where})", found["kind"], checks)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
