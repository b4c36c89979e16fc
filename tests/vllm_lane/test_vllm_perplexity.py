"""Perplexities by a real vLLM server and by our own forward pass, side by side."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from perplexity_helpers import (
    MODEL,
    PROBLEMS,
    make_uniform,
    read,
    response,
    run,
    write_inputs,
)
from safetensors.numpy import load_file, save_file
from train_helpers import VOCABULARY, write_policy
from vllm_helpers import processes_of, serving

from pcl_reasoner.core.errors import StageError

LENGTH = 256
SERVER = {"engine": "server", "seq_length": LENGTH, "concurrency": 8}


def test_both_engines_agree_and_no_process_is_left(tmp_path: Path) -> None:
    before = set(processes_of(os.getpid()))  # a fixture's server, from earlier tests
    draw = np.random.default_rng(0)
    lengths = [1, 2, 3, 200, *draw.integers(4, 200, 36).tolist()]
    rows = [
        response(list(PROBLEMS)[i % 3], i, [*draw.integers(3, VOCABULARY, n - 1).tolist(), 2])
        for i, n in enumerate(lengths)
    ]
    rows.append(response("a", 99, []))
    inputs = write_inputs(tmp_path / "in", write_policy(tmp_path / "policy", layers=2), rows)
    run(inputs, tmp_path / "model", {**MODEL, "seq_length": LENGTH})
    counts = run(inputs, tmp_path / "server", SERVER, sampling=serving())
    ours, theirs = read(tmp_path / "model"), read(tmp_path / "server")
    for one, other in zip(ours, theirs, strict=True):
        assert {**one, "perplexity": 0} == {**other, "perplexity": 0}
    assert ours[-1]["perplexity"] is None
    assert theirs[-1]["perplexity"] is None
    found = [[row["perplexity"] for row in one[:-1]] for one in (ours, theirs)]
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    # Responses of random tokens are unlikely, each in its own way.
    assert min(found[0]) > VOCABULARY / 10
    assert max(found[0]) > 2 * min(found[0])
    (server,) = counts.info["servers"]
    assert (server["owned_by"], server["max_model_len"]) == ("vllm", LENGTH + 1)
    assert set(processes_of(os.getpid())) <= before


def test_a_uniform_model_of_v_words_has_the_perplexity_v(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy")
    make_uniform(policy)
    # The longest that fits: the server generates one token more.
    rows = [response("a", 0, [2]), response("b", 0, [9, 8, 2]), response("c", 0, [5] * 200)]
    inputs = write_inputs(tmp_path / "in", policy, rows)
    run(inputs, tmp_path / "out", SERVER, sampling=serving())
    found = [row["perplexity"] for row in read(tmp_path / "out")]
    assert found == pytest.approx([VOCABULARY] * 3, rel=1e-5)


def test_a_model_that_gives_nan_is_an_error_that_names_the_response(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy")
    weights = load_file(policy / "model.safetensors")
    weights["model.embed_tokens.weight"][5] = np.nan
    save_file(weights, policy / "model.safetensors", metadata={"format": "pt"})
    inputs = write_inputs(tmp_path / "in", policy, [response("a", 4, [5, 6, 2])])
    with pytest.raises(StageError, match="no server gives log-probs of response 4 of problem a"):
        run(inputs, tmp_path / "out", {**SERVER, "retries": 1}, sampling=serving())
