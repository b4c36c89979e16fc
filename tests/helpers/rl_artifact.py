"""Rows and files of a stage ``rl``, for tests that write an artifact by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from pcl_reasoner.core import schemas
from pcl_reasoner.page_parts.records import StageRecord

Row = dict[str, Any]
KINDS = {"m": "math", "c": "code", "i": "instruction", "h": "chat"}
"""First letter of a problem's id -> its kind."""


def round_row(number: int, kinds: dict[str, tuple[int, float]], **more: Any) -> Row:
    """A row of rounds.parquet; ``kinds`` is kind -> responses and the sum of their rewards."""
    answered = sum(count for count, _ in kinds.values())
    counts = {"responses": answered, "failed": 0, "groups_left_out": 0, "overlong": 0}
    counts |= {"stopped": answered, "no_advantage": 0, "segments": answered, "trained": answered}
    measured = {"mean_reward": 0.5, "loss": 0.0, "grad_norm": 0.2, "learning_rate": 1e-4}
    measured |= {"mismatch": 0.0, "mismatch_abs": 1e-6, "mismatch_max": 1e-5}
    tokens = {"tokens": 10 * answered, "trained_tokens": 10 * answered}
    found = {
        kind: {"responses": float(count), "reward": reward, "correct": reward}
        for kind, (count, reward) in kinds.items()
    }
    return {"round": number, **counts, **tokens, **measured, "kinds": found, **more}


def probe(number: int, kinds: list[str], correct: list[float], n: int = 4) -> Row:
    """A line of probe.jsonl."""
    line = {"round": number, "n": n, "kinds": kinds, "correct": correct, "accuracy": 0.0, "se": 0.0}
    return {**line, "mean_length": 50.0 + number, "stop_ratio": 0.75}


def response(key: tuple[str, int], number: int, advantage: float | None, **more: Any) -> Row:
    """A row of responses/; the kind is that of the problem's first letter."""
    correct = (advantage or 0.0) > 0
    return {
        "problem_id": key[0],
        "sample_index": key[1],
        "response": f"answer {key[1]}",
        "finish_reason": "stop",
        "n_tokens": 10,
        "round": number,
        "kind": KINDS[key[0][0]],
        "verdict": "correct" if correct else "incorrect",
        "reward": float(correct),
        "advantage": advantage,
        **more,
    }


def write_rl(
    folder: Path, rounds: list[Row], responses: list[Row], visits: list[tuple[str, int]]
) -> None:
    """Write the tables of an artifact; ``visits`` is problem and round."""
    rows = [{**row, "kinds": json.dumps(row["kinds"])} for row in rounds]
    parquet.write_table(pa.Table.from_pylist(rows), folder / "rounds.parquet")
    schema = pa.unify_schemas([schemas.RESPONSES, schemas.ROUND_RESPONSES])
    (folder / "responses").mkdir()
    table = pa.Table.from_pylist(responses, schema=schema)
    parquet.write_table(table, folder / "responses" / "part-00000.parquet")
    kinds = {"m": "math", "c": "code", "i": "instruction", "h": "chat"}
    seen = [
        {"problem_id": name, "kind": kinds[name[0]], "round": number} for name, number in visits
    ]
    table = pa.Table.from_pylist(seen, schema=schemas.VISITS)
    parquet.write_table(table, folder / "visits.parquet")


def rl_record(name: str, rounds: list[Row], **files: Any) -> StageRecord:
    """The record of a finished stage ``rl``, as the report reads it."""
    config = files.pop("config", {})
    origins = files.pop("origins", {})
    tests = files.pop("tests", {"rounds": [], "failures": {}})
    asked = files.pop("asked", {})
    manifest = {"stage": "rl", "identity": {"config": config}, "origins": origins}
    rl = {"rounds": rounds, "tests": tests, "asked": asked}
    return StageRecord("am", name, manifest, {"rl": rl, **files})
