"""The model with log-probs in chunks: the loss and the gradient of every weight stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from model_helpers import build, columns, loss_and_gradients
from train_helpers import LENGTH, PLACES, packed_row, write_policy

pytestmark = pytest.mark.slow

CHUNK_TOKENS = 14
"""Of two rows of 32 tokens: chunks of seven tokens a row, the last of four."""


@pytest.mark.parametrize("tied", [False, True])
def test_chunks_change_nothing(tmp_path: Path, tied: bool) -> None:
    """With tied weights the embedding's gradient has two parts, one of them made by hand."""
    policy = write_policy(tmp_path / "policy", tied=tied)
    rows = [packed_row([10, 24], LENGTH), packed_row([9, 20, 30], LENGTH, seed=1)]
    given = columns(rows, PLACES)
    full, by_full = loss_and_gradients(build(policy, loss="opg"), given)
    model = build(policy, loss="opg", logits_chunk_tokens=CHUNK_TOKENS)
    assert model.chunked_log_probs.scores.step == 7
    chunked, by_chunks = loss_and_gradients(model, given)
    assert chunked == pytest.approx(full, rel=1e-6)
    assert by_chunks.keys() == by_full.keys()
    assert ("model.lm_head.weight" in by_full) is not tied
    for name, gradient in by_full.items():
        assert np.abs(gradient).max() > 0, name
        tolerance = 2e-5 * np.abs(gradient).max()
        np.testing.assert_allclose(by_chunks[name], gradient, atol=tolerance, err_msg=name)
