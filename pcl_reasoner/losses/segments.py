"""From token log-probs to one number a segment, in NumPy and as a MindSpore Cell.

Shapes: B rows, S tokens a row, G places for segments in a row (``max_segments``).
``segment_ids`` [B, S] says which segment a token is in; ``trained`` [B, S] is 1 where the label
is trained on. A segment without a trained token has T = 0, mean 0 and, by its weight, no loss.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

SEGMENT = "segment"
"""The mean's unit: each response weighs once, whatever its length."""
TOKEN = "token"
"""The mean's unit: each trained token weighs once."""


def segment_sums(values: np.ndarray, trained: np.ndarray, segment_ids: np.ndarray, places: int):
    """Sum token values by segment.

    Args:
        values: [B, S] float32.
        trained: [B, S], 1 where trained.
        segment_ids: [B, S] int.
        places: G.

    Returns:
        [B, G] float64.
    """
    sums = np.zeros((values.shape[0], places), np.float64)
    for row in range(values.shape[0]):
        inside = segment_ids[row] < places
        weights = (values[row] * trained[row])[inside]
        sums[row] = np.bincount(segment_ids[row][inside], weights, minlength=places)[:places]
    return sums


def segment_means(log_probs: np.ndarray, trained: np.ndarray, segment_ids: np.ndarray, places: int):
    """m = (1/T) Σ log π(y_t) of every segment, and T.

    Args:
        log_probs: [B, S] float32, log π of each label.
        trained: [B, S], 1 where trained.
        segment_ids: [B, S] int.
        places: G.

    Returns:
        m [B, G] and T [B, G], float64.
    """
    tokens = segment_sums(np.ones_like(log_probs), trained, segment_ids, places)
    sums = segment_sums(log_probs, trained, segment_ids, places)
    return sums / np.maximum(tokens, 1.0), tokens


class SegmentMeans(nn.Cell):
    """m and T of every segment; the sum by segment is one matrix product with a one-hot."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.places = places
        self.on = Tensor(1.0, ms.float32)
        self.off = Tensor(0.0, ms.float32)
        self.one_hot = ops.OneHot()
        self.batch_matmul = ops.BatchMatMul()

    def construct(self, log_probs, trained, segment_ids):
        """[B, S] log-probs, trained, segment_ids -> m [B, G], T [B, G]."""
        member = self.one_hot(segment_ids, self.places, self.on, self.off)  # [B, S, G]
        sums = self.batch_matmul((log_probs * trained).expand_dims(1), member)  # [B, 1, G]
        tokens = self.batch_matmul(trained.expand_dims(1), member)  # [B, 1, G]
        tokens = tokens.squeeze(1)  # [B, G]
        return sums.squeeze(1) / ops.maximum(tokens, self.on), tokens


class TokenLogProbs(nn.Cell):
    """log π(label) of every token from full logits, in float32.

    Holds [B·S, V] float32; what never does is for long rows at a large vocabulary, and comes
    with the chunked form.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on = Tensor(1.0, ms.float32)
        self.off = Tensor(0.0, ms.float32)
        self.one_hot = ops.OneHot()
        self.log_softmax = ops.LogSoftmax(-1)

    def construct(self, logits, labels):
        """logits [B·S, V] (any float), labels [B, S] (−100: its log-prob is 0) -> [B, S]."""
        log_probs = self.log_softmax(logits.astype(ms.float32))  # [B·S, V]
        # The one-hot of −100 is a row of zeros, so an untrained token picks nothing.
        chosen = self.one_hot(labels.reshape((-1,)), logits.shape[-1], self.on, self.off)
        return (log_probs * chosen).sum(-1).reshape(labels.shape)
