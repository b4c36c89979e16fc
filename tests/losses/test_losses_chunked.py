"""Log-probs in chunks: equal to full logits with their gradients, and counted in bytes."""

from __future__ import annotations

from math import log
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from loss_memory import extra_bytes, full_logits_bytes
from losses_helpers import graph_mode
from mindspore import Tensor, nn, ops

from pcl_reasoner.losses import build_loss
from pcl_reasoner.losses.chunked import ChunkedLogProbs, PartScores
from pcl_reasoner.losses.chunks import (
    chunk_length,
    chunked_bytes,
    weight_pieces,
)
from pcl_reasoner.losses.segments import SegmentMeans, TokenLogProbs

ROWS, LENGTH, HIDDEN, VOCABULARY, PLACES = 2, 13, 16, 24, 3
STEP = 4
"""13 tokens in chunks of 4: the last has one."""
ATOL = 5e-6
"""MindSpore's LogSoftmax on a CPU is this good, with full logits too."""


def drawn() -> dict[str, np.ndarray]:
    """Hidden states, weights, labels (the first chunk's are not trained), and a loss's columns."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, VOCABULARY, (ROWS, LENGTH))
    labels[:, :STEP] = -100
    labels[1, 6] = -100
    trained = (labels >= 0).astype(np.float32)
    segment_ids = np.array([[0] * 7 + [1] * 6, [0] * 5 + [1] * 4 + [2] * 4])
    return {
        "hidden": rng.standard_normal((ROWS, LENGTH, HIDDEN)).astype(np.float32),
        "weight": 0.3 * rng.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32),
        "labels": labels.astype(np.int32),
        "rewards": np.array([[1.0, 0.25, 0], [0, 1, 1]], np.float32),
        "segment_weights": np.array([[0.2, 0.2, 0], [0.2, 0.2, 0.2]], np.float32),
        "token_weights": trained / trained.sum(),
        "trained": trained,
        "segment_ids": segment_ids.astype(np.int32),
        "pass_rates": np.full((ROWS, PLACES), 0.5, np.float32),
        "advantages": np.array([[1.0, -0.5, 0], [-1, 1, 0.7]], np.float32),
        "old_log_probs": -rng.exponential(3, (ROWS, LENGTH)).astype(np.float32),
        "old_log_probs_mean": np.full((ROWS, PLACES), -3.0, np.float32),
    }


class Full(nn.Cell):
    """All logits at once, in the compute type: MindFormers' lm_head, then ours without chunks."""

    def __init__(self, compute_type: Any = ms.float32) -> None:
        super().__init__()
        self.compute_type = compute_type
        self.matmul = ops.MatMul(transpose_b=True)
        self.log_probs = TokenLogProbs()

    def construct(self, hidden, weight, labels):
        flat = hidden.reshape((-1, hidden.shape[-1])).astype(self.compute_type)
        logits = self.matmul(flat, weight.astype(self.compute_type))
        log_probs = self.log_probs(logits, labels)
        return log_probs, log_probs


class WholeLoss(nn.Cell):
    """Hidden states -> loss, times a loss scale; log-probs and entropies beside it."""

    def __init__(self, log_probs: nn.Cell, loss: str, scale: float = 1.0) -> None:
        super().__init__()
        self.log_probs, self.scale = log_probs, scale
        self.means = SegmentMeans(PLACES)
        self.loss = build_loss(loss, PLACES)

    def construct(self, hidden, weight, labels, *columns):
        log_probs, entropies = self.log_probs(hidden, weight, labels)
        mean, _ = self.means(log_probs, columns[3], columns[4])
        return self.scale * self.loss(log_probs, mean, *columns), log_probs, entropies


def run(cell: nn.Cell, given: dict[str, np.ndarray]) -> list[Any]:
    """Loss, log-probs, entropies, gradients by hidden states and weights."""
    graph_mode()
    values, gradients = ms.value_and_grad(cell, (0, 1), has_aux=True)(
        *(Tensor(column) for column in given.values())
    )
    return [value.asnumpy() for value in (*values, *gradients)]


# Losses of a mean, of all tokens, and of each token against an old one.
@pytest.mark.parametrize("loss", ["opg", "sft", "grpo"])
def test_loss_and_gradients_are_those_of_full_logits(loss: str) -> None:
    given = drawn()
    full, log_probs, _, by_hidden, by_weight = run(WholeLoss(Full(), loss), given)
    chunked = run(WholeLoss(ChunkedLogProbs(VOCABULARY, STEP), loss), given)
    assert np.abs(by_hidden).max() > 1e-3 and np.abs(by_weight).max() > 1e-3
    assert chunked[0] == pytest.approx(full, rel=1e-6)
    np.testing.assert_allclose(chunked[1], log_probs, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(chunked[3], by_hidden, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(chunked[4], by_weight, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("step", [STEP, LENGTH])
def test_log_probs_entropies_and_gradients_by_their_formulas(parts: int, step: int) -> None:
    """Parts of the vocabulary are what tensor-parallel ranks hold; here all are in one place."""
    given = drawn()
    cell = ChunkedLogProbs(VOCABULARY, step, parts=parts, entropy=True)
    loss, log_probs, entropies, by_hidden, by_weight = run(WholeLoss(cell, "sft"), given)
    hidden, weight = given["hidden"].astype(np.float64), given["weight"].astype(np.float64)
    exponents = np.exp(hidden @ weight.T)
    shares = exponents / exponents.sum(-1, keepdims=True)
    one_hot = np.eye(VOCABULARY)[np.maximum(given["labels"], 0)] * given["trained"][..., None]
    expected = (np.log(shares) * one_hot).sum(-1)
    np.testing.assert_allclose(log_probs, expected, atol=ATOL)
    assert loss == pytest.approx(-(expected * given["token_weights"]).sum(), rel=1e-6)
    np.testing.assert_allclose(entropies, -(shares * np.log(shares)).sum(-1), atol=1e-5)
    by_logits = given["token_weights"][..., None] * (shares - one_hot)
    np.testing.assert_allclose(by_hidden, by_logits @ weight, atol=1e-7)
    np.testing.assert_allclose(by_weight, np.einsum("bsv,bsh->vh", by_logits, hidden), atol=1e-6)


class Backward(nn.Cell):
    """The hand-made gradient on its own."""

    def __init__(self, scores: PartScores) -> None:
        super().__init__()
        self.scores = scores

    def construct(self, hidden, weight, index, *by_scores):
        return self.scores.bprop(hidden, weight, index, None, by_scores)


def test_the_gradient_by_hand_is_correct_on_the_piece_that_a_rank_holds() -> None:
    """MindSpore does not cut it: summed over ranks it must be the gradient of the whole."""
    given = drawn()
    rng = np.random.default_rng(1)
    label = np.maximum(given["labels"], 0)[..., None]
    index = np.concatenate([np.clip(label - 12 * part, 0, 11) for part in range(2)], 2)
    by_scores = rng.standard_normal((2, *index.shape)).astype(np.float32)
    graph_mode()
    backward = Backward(PartScores(VOCABULARY, 2, STEP, entropy=False))
    hidden, weight = given["hidden"], given["weight"]

    def gradients(weight: np.ndarray, places: slice) -> tuple[np.ndarray, np.ndarray]:
        part = Tensor(index[..., places], ms.int32)
        sensitivity = (Tensor(one[..., places]) for one in by_scores)
        found = backward(Tensor(hidden), Tensor(weight), part, *sensitivity)
        return found[0].asnumpy(), found[1].asnumpy()

    whole = gradients(weight, slice(0, 2))
    first, second = gradients(weight[:12], slice(0, 1)), gradients(weight[12:], slice(1, 2))
    np.testing.assert_allclose(first[0] + second[0], whole[0], atol=1e-5)
    np.testing.assert_allclose(np.concatenate([first[1], second[1]]), whole[1], atol=1e-5)


def test_two_words_by_hand() -> None:
    # Logits 0 and log 3: shares 1/4 and 3/4.
    graph_mode()
    cell = ChunkedLogProbs(2, 1, entropy=True)
    hidden, weight = Tensor([[[1.0], [1.0]]]), Tensor([[0.0], [log(3)]])
    log_probs, entropies = cell(hidden, weight, Tensor([[1, -100]], ms.int32))
    np.testing.assert_allclose(log_probs.asnumpy(), [[log(3 / 4), 0]], atol=ATOL)
    entropy = -log(1 / 4) / 4 - 3 * log(3 / 4) / 4
    np.testing.assert_allclose(entropies.asnumpy(), [[entropy, entropy]], atol=ATOL)


def test_float16_with_a_loss_scale_is_full_float16() -> None:
    """The scale comes down to the hand-made gradient as to MindSpore's own."""
    given = drawn()
    full = run(WholeLoss(Full(ms.float16), "opg", scale=1024.0), given)
    cell = ChunkedLogProbs(VOCABULARY, STEP, compute_type=ms.float16)
    chunked = run(WholeLoss(cell, "opg", scale=1024.0), given)
    assert np.abs(full[4]).max() > 1
    for ours, theirs in zip(chunked[3:], full[3:], strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, atol=2e-3 * np.abs(theirs).max())


def test_a_large_vocabulary_is_added_up_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    given = drawn()
    whole = run(WholeLoss(ChunkedLogProbs(VOCABULARY, STEP), "sft"), given)
    monkeypatch.setattr("pcl_reasoner.losses.chunks.MIN_SPLIT_ROWS", 1)
    cell = ChunkedLogProbs(VOCABULARY, STEP)
    assert len(cell.scores.pieces) == 8
    np.testing.assert_allclose(run(WholeLoss(cell, "sft"), given)[4], whole[4], atol=1e-8)


def test_how_rows_and_weights_are_cut() -> None:
    assert chunk_length(1024, rows=1, length=51_200) == 1024
    assert chunk_length(1024, rows=16, length=256) == 64
    assert chunk_length(1024, rows=2, length=256) == 256
    assert chunk_length(8, rows=16, length=256) == 1
    assert weight_pieces(512) == ((0, 512),)
    assert weight_pieces(8193)[0] == (0, 1025)
    assert weight_pieces(8193)[-1] == (7175, 8193)


def test_bytes_by_hand() -> None:
    """A rank of eight: 19 008 rows of 5 120; 1 024 tokens a chunk; bfloat16."""
    weights, logits = 19_008 * 5_120, 19_008 * 1_024
    found = chunked_bytes(1_024, 19_008, 5_120)
    assert found["logits of a chunk"] == 4 * weights + 12 * logits
    # The sum so far, a product, 1/8 of it cut out, in float32 and added; the logits' gradient.
    assert found["a chunk's part is added"] == 6 * weights + 10 * weights / 8 + 2 * logits
    assert found["pieces are joined"] == 8 * weights
    assert extra_bytes(1_024, 19_008, 5_120) == 2 * weights
    more = chunked_bytes(4_096, 19_008, 5_120, entropy=True)
    assert more["logits of a chunk"] == 4 * weights + 16 * 4 * logits
    # Small weights in float32: a product, and their sum with what there was.
    assert chunked_bytes(8, 512, 128, compute_bytes=4)["a chunk's part is added"] == (
        12 * 512 * 128 + 4 * 512 * 8
    )
    assert full_logits_bytes(51_200, 152_064) == 51_200 * 152_064 * 4


@pytest.mark.parametrize("tensor_parallel", [1, 8])
@pytest.mark.parametrize(("chunk_tokens", "tokens"), [(1_024, 32_768), (2_048, 51_200)])
def test_at_most_an_eighth_of_full_logits(
    chunk_tokens: int, tokens: int, tensor_parallel: int
) -> None:
    """V1's and V1.5's rows and chunks, with entropies."""
    rows = 152_064 // tensor_parallel
    extra = extra_bytes(chunk_tokens, rows, 5_120, entropy=True)
    assert extra <= full_logits_bytes(tokens, rows) / 8
