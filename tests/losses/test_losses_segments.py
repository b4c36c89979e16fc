"""Segment means and label log-probs: by hand, and by PyTorch."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
import torch
from losses_helpers import batch_of, drawn_batch, graph_mode
from mindspore import Tensor, nn

from pcl_reasoner.losses.segments import SegmentMeans, TokenLogProbs, segment_means

pytestmark = pytest.mark.usefixtures("_graph_mode")


@pytest.fixture
def _graph_mode() -> None:
    graph_mode()


class Summed(nn.Cell):
    """The sum of all label log-probs, to be differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.token_log_probs = TokenLogProbs()

    def construct(self, logits, labels):
        return self.token_log_probs(logits, labels).sum()


def test_a_mean_is_over_the_trained_tokens_of_its_segment_alone() -> None:
    # Row 0: (-, -1, -3) and (-2, -) then padding; row 1: a segment that nothing is trained on.
    batch = batch_of([[([None, -1, -3], 1), ([-2, None], 0)], [([None] * 3, 1)]], 6, places=2)
    mean, tokens = segment_means(batch.log_probs, batch.trained, batch.segment_ids, 2)
    assert mean.tolist() == [[-2.0, -2.0], [0.0, 0.0]]
    assert tokens.tolist() == [[2, 1], [0, 0]]


def test_the_cell_finds_the_same_means() -> None:
    batch = drawn_batch()
    # A trained label in the padding, whose id is the width itself, belongs to no segment.
    batch.trained[1, -1] = 1.0
    assert batch.segment_ids[1, -1] == batch.rewards.shape[1]
    arrays = (batch.log_probs, batch.trained, batch.segment_ids)
    mean, tokens = SegmentMeans(4)(*(Tensor(array) for array in arrays))
    expected, expected_tokens = segment_means(*arrays, 4)
    np.testing.assert_allclose(mean.asnumpy(), expected, rtol=1e-6, atol=1e-7)
    assert tokens.asnumpy().tolist() == expected_tokens.tolist()
    assert expected_tokens.tolist() == [[3, 5, 1, 0], [4, 0, 6, 1]]


def test_label_log_probs_and_their_gradient_are_pytorchs() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 4, (6, 11)).astype(np.float32)
    labels = np.array([[3, -100, 0], [10, 7, -100]], np.int32)
    found = TokenLogProbs()(Tensor(logits), Tensor(labels)).asnumpy()
    gradient = ms.grad(Summed())(Tensor(logits), Tensor(labels)).asnumpy()

    theirs = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    chosen = torch.log_softmax(theirs, -1).gather(1, torch.tensor([[3], [0], [0], [10], [7], [0]]))
    trained = torch.tensor([1, 0, 1, 1, 1, 0])
    expected = chosen.squeeze(1) * trained
    expected.sum().backward()
    np.testing.assert_allclose(found.reshape(-1), expected.detach().numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient, theirs.grad.numpy(), rtol=1e-5, atol=1e-6)
    assert not gradient[[1, 5]].any()


def test_half_precision_logits_are_reckoned_in_single() -> None:
    logits = np.array([[8.0, 0.0, -4.0]], np.float16)
    found = TokenLogProbs()(Tensor(logits), Tensor([[1]], ms.int32)).asnumpy()
    assert found.dtype == np.float32
    # log softmax of the second: −8 − ln(1 + e^−8 + e^−12)
    assert found[0, 0] == pytest.approx(-8.00034155, abs=2e-6)
