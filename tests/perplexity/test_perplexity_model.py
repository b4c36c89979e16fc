"""Perplexities by the trainer's own forward pass: known ones, and transformers' own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from perplexity_helpers import (
    LENGTH,
    MODEL,
    PROBLEMS,
    make_uniform,
    read,
    response,
    run,
    write_inputs,
)
from train_helpers import VOCABULARY, write_policy
from transformers import AutoModelForCausalLM

from pcl_reasoner.core.artifact import hash_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.pack.encoder import load_encoder
from pcl_reasoner.train import worker

ROWS = [
    response("a", 0, [30, 31, 32, 2]),
    response("a", 1, [2]),
    response("b", 0, []),
    response("b", 1, [40, 200, 41, 7, 7, 7], finish_reason="length"),
    response("c", 0, [VOCABULARY - 1, 5, 2]),
    response("c", 1, list(range(3, 30))),
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    return write_inputs(folder / "in", write_policy(folder / "policy"), ROWS)


@pytest.fixture(scope="module")
def made(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("stage") / "perplexity-12345678.partial"
    counts = run(inputs, output, MODEL)
    assert (counts.read, counts.kept, counts.dropped) == (6, 6, {})
    assert counts.info["engine"] == "model"
    return output


def by_transformers(policy: Path, row: dict[str, Any]) -> float:
    """The definition, each response on its own, in float64."""
    model = AutoModelForCausalLM.from_pretrained(policy, torch_dtype=torch.float64).eval()
    prompt = load_encoder(policy).prompt_ids(
        [{"role": "user", "content": PROBLEMS[row["problem_id"]]}]
    )
    with torch.no_grad():
        log_probs = model(torch.tensor([prompt + row["token_ids"]])).logits[0].log_softmax(-1)
    drawn = [log_probs[len(prompt) - 1 + i, t].item() for i, t in enumerate(row["token_ids"])]
    return math.exp(-sum(drawn) / len(drawn))


def test_perplexities_are_transformers_own(inputs: dict[str, Path], made: Path) -> None:
    for row, before in zip(read(made), ROWS, strict=True):
        assert {name: row[name] for name in before} == before
        assert row["trained_tokens"] == len(before["token_ids"])
        if not before["token_ids"]:
            assert row["perplexity"] is None
            continue
        wanted = by_transformers(inputs["policy"], before)
        assert row["perplexity"] == pytest.approx(wanted, rel=1e-4)
    # They tell the responses apart.
    found = [row["perplexity"] for row in read(made) if row["perplexity"]]
    assert max(found) > 2 * min(found)


def test_nothing_but_the_payload_is_left(made: Path) -> None:
    assert sorted(path.name for path in made.iterdir()) == ["perplexity.json", "responses"]
    assert (made.parent / "logs" / "perplexity-12345678.model.log").exists()


def test_a_uniform_model_of_v_words_has_the_perplexity_v(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "policy")
    size = make_uniform(policy)
    rows = [response("a", 0, [2]), response("b", 0, [9, 8, 7, 2]), response("c", 0, [5] * 30)]
    run(write_inputs(tmp_path / "in", policy, rows), tmp_path / "out", MODEL)
    assert size == VOCABULARY
    found = [row["perplexity"] for row in read(tmp_path / "out")]
    assert found == pytest.approx([VOCABULARY] * 3, rel=1e-5)


@pytest.mark.slow
def test_a_run_that_was_cut_off_resumes_to_the_same_bytes(
    inputs: dict[str, Path], made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "perplexity.partial"
    real = worker.run_worker

    def cut(arguments: list[str], folder: Path, *others: Any) -> None:
        real(arguments, folder, *others)
        values = folder / "values.f32"
        values.write_bytes(values.read_bytes()[: 4 * LENGTH + 5])
        raise StageError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(worker, "run_worker", cut)
        with pytest.raises(StageError, match="cut off"):
            run(inputs, output, MODEL)
    assert sorted(path.name for path in output.iterdir()) == ["work"]
    run(inputs, output, MODEL)
    for path in [*(made / "responses").iterdir(), made / "perplexity.json"]:
        assert hash_file(output / path.relative_to(made)) == hash_file(path), path.name


@pytest.mark.slow
def test_log_probs_that_are_not_numbers_are_an_error(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import load_file, save_file

    policy = write_policy(tmp_path / "policy")
    weights = load_file(policy / "model.safetensors")
    weights["model.embed_tokens.weight"][5] = np.nan
    save_file(weights, policy / "model.safetensors", metadata={"format": "pt"})
    rows = [response("a", 0, [9, 2]), response("a", 1, [5, 2]), response("a", 2, [5, 2])]
    inputs = write_inputs(tmp_path / "in", policy, rows)
    # One response per row, because one row's NaN spreads over all of its segments.
    settings = {**MODEL, "max_segments": 1}
    with pytest.raises(
        StageError, match="response 1 of problem a: its log-probs are not numbers, .* of 2 resp"
    ):
        run(inputs, tmp_path / "out", settings)
