"""The stage ``rl`` with two real vLLM servers, one of which is killed while it samples."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file
from train_helpers import PLACES, write_policy
from vllm_helpers import context, kill, processes_of, serving, wait_for

from pcl_reasoner.core.schemas import PROBLEMS
from pcl_reasoner.rl.stage import rl
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import round_folder
from pcl_reasoner.train.stopping import read_steps

ROUNDS, QUERIES, N, LENGTH = 3, 6, 8, 96


def problems(folder: Path) -> Path:
    """Texts that must be short: a random policy stops at random, so rewards differ."""
    folder.mkdir()
    checks = {
        "instructions": [
            {
                "id": "length_constraints:number_words",
                "kwargs": {"relation": "less than", "num_words": 30},
            }
        ]
    }
    rows = [
        {
            "problem_id": f"p{i:02d}",
            "problem": f"{i} user {i % 7} = {i % 3} ?",
            "kind": "instruction",
            "checks": json.dumps(checks),
        }
        for i in range(2 * QUERIES)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=PROBLEMS), folder / "clean.parquet")
    return folder


def stopping(policy: Path) -> Path:
    """The same policy, which ends about every third response before its limit."""
    file = policy / "model.safetensors"
    weights = load_file(file)
    # The end token is as likely as the mean of a few others.
    weights["lm_head.weight"][2] = weights["lm_head.weight"][100:104].mean(0) * 4
    save_file(weights, file, metadata={"format": "pt"})
    return policy


def config(**changes: Any) -> RlConfig:
    settings: dict[str, Any] = {
        "engine": "server",
        "queries": QUERIES,
        "n": N,
        "max_rounds": ROUNDS,
        "plateau": None,
        "max_new_tokens": 40,
        "max_model_len": LENGTH,
        "row_tokens": LENGTH,
        "rows": 4,
        "micro_batch_size": 4,
        "max_segments": PLACES,
        "learning_rate": 1e-4,
        "seed": 3,
        "concurrency": 8,
        "device": "CPU",
        "precision": "float32",
        "compressed_mask": False,
        "max_mismatch": 1e-4,
    }
    return RlConfig(**settings | changes)


@pytest.mark.vllm
def test_rounds_with_servers_one_of_which_is_killed(tmp_path: Path) -> None:
    before = set(processes_of(os.getpid()))
    policy = stopping(write_policy(tmp_path / "policy", layers=2))
    output = tmp_path / "out" / "rl.partial"
    output.mkdir(parents=True)
    made = context(output, sampling={**serving(), "servers": 2})
    log = round_folder(output / "rounds", 1) / "responses.partial.jsonl"
    killed = threading.Thread(target=lambda: (wait_for(log.exists), kill("VLLM::EngineCor")))
    killed.start()
    inputs = {"problems": problems(tmp_path / "problems"), "policy": policy}
    counts = rl(config(), inputs, output, made)
    killed.join()
    assert (counts.read, counts.kept, counts.info["rounds"]) == (ROUNDS * QUERIES * N,) * 2 + (3,)
    assert any("restarted" in text for text in made.warnings)
    responses = pq.read_table(output / "responses").to_pylist()
    keys = {(one["round"], one["problem_id"], one["sample_index"]) for one in responses}
    assert len(keys) == len(responses) == ROUNDS * QUERIES * N
    assert all(len(one["sampled_log_probs"]) == one["n_tokens"] for one in responses)
    # The trainer computes the log-probs that the servers reported: they had its weights.
    lines = read_steps(output / "metrics.jsonl")
    gaps = [line["mismatch_abs"] for line in lines if line["tokens"]]
    assert len(lines) == ROUNDS and len(gaps) >= 2 and max(gaps) < 1e-4
    # The weights did change: with those of round 0 the gap of round 2 would be larger.
    hashes = {
        (round_folder(output / "rounds", number) / "weights.json").read_text()
        for number in range(ROUNDS)
    }
    assert len(hashes) == ROUNDS
    assert set(processes_of(os.getpid())) <= before
