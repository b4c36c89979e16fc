"""Responses with chosen token ids, their problems, and the stage ``perplexity`` run on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save_file

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.schemas import RESPONSES
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.perplexity.config import PerplexityConfig
from pcl_reasoner.perplexity.stage import perplexity

LENGTH = 64
"""Longest segment; the prompts below have about 20 tokens."""
PROBLEMS = {"a": "12-3=9", "b": "9-2=7 think", "c": "assistant 7"}
MODEL = {
    "seq_length": LENGTH,
    "max_segments": 8,
    "device": "CPU",
    "precision": "float32",
    "compressed_mask": False,
}
SERVER = {"engine": "server", "seq_length": LENGTH, "concurrency": 2, "retries": 2}


def response(name: str, index: int, ids: list[int] | None, **changes: Any) -> dict[str, Any]:
    return {
        "problem_id": name,
        "sample_index": index,
        "response": "" if ids == [] else "text",
        "token_ids": ids,
        "finish_reason": "stop",
        "n_tokens": len(ids or []),
        "seed": 7,
        "seconds": 0.5,
        "server": "local",
        **changes,
    }


def write_inputs(
    folder: Path, policy: Path, rows: list[dict[str, Any]], schema: pa.Schema = RESPONSES
) -> dict[str, Path]:
    """The stage's inputs: responses in two files, and the problems."""
    responses = folder / "sample" / "responses"
    responses.mkdir(parents=True)
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        table = pa.Table.from_pylist(part, schema=schema)
        pq.write_table(table, responses / f"part-{number:05d}.parquet")
    (folder / "problems").mkdir()
    problems = {"problem_id": list(PROBLEMS), "problem": list(PROBLEMS.values())}
    pq.write_table(pa.table(problems), folder / "problems" / "clean.parquet")
    return {"responses": folder / "sample", "problems": folder / "problems", "policy": policy}


def run(
    inputs: dict[str, Path], output: Path, settings: dict[str, Any], **placement: Any
) -> Counts:
    output.mkdir(exist_ok=True)
    context = StageContext("perplexity", output / "quarantined.jsonl", Placement(**placement))
    return perplexity(PerplexityConfig(**settings), inputs, output, context)


def read(output: Path) -> list[dict[str, Any]]:
    """The rows of all files, in their order."""
    files = sorted((output / "responses").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def make_uniform(policy: Path) -> int:
    """Set the output layer to zero: every token is equally likely. Return the vocabulary's size."""
    weights = load_file(policy / "model.safetensors")
    weights["lm_head.weight"] = np.zeros_like(weights["lm_head.weight"])
    save_file(weights, policy / "model.safetensors", metadata={"format": "pt"})
    size: int = json.loads((policy / "config.json").read_text())["vocab_size"]
    return size
