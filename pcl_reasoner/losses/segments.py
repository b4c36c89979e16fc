"""Reduces token log-probs to one number per segment, in NumPy and as a MindSpore Cell.

Shapes: B rows, S tokens per row, G segments that a row can hold (``max_segments``).
``segment_ids`` [B, S] has the index of each token's segment. ``trained`` [B, S] is 1 where the
label is trained on. T is the number of a segment's trained tokens. A segment with T = 0 has mean 0,
and no loss, because its weight is 0.
"""

from dataclasses import dataclass
from typing import Any, Self

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


@dataclass(frozen=True)
class Batch:
    """The inputs of a loss, in NumPy; the Cells take the same inputs.

    Args:
        log_probs: [B, S], log π of each label.
        trained: [B, S], 1 where the label is trained on.
        segment_ids: [B, S] int.
        rewards: [B, G] in [0, 1].
        segment_weights: [B, G]; 1 / number of trained segments of the global batch; 0 if T = 0.
        token_weights: [B, S]; 1 / number of trained tokens of the global batch; untrained: 0.
        pass_rates: [B, G], mean reward of the responses to the segment's problem.
        advantages: [B, G], (reward − pass rate) / standard deviation of the group's rewards.
        old_log_probs: [B, S], log π of each label under the old policy.
        old_log_probs_mean: [B, G], mean of old_log_probs over the segment's trained tokens.
    """

    log_probs: np.ndarray
    trained: np.ndarray
    segment_ids: np.ndarray
    rewards: np.ndarray
    segment_weights: np.ndarray
    token_weights: np.ndarray
    pass_rates: np.ndarray
    advantages: np.ndarray
    old_log_probs: np.ndarray
    old_log_probs_mean: np.ndarray

    def means(self, values: np.ndarray | None = None) -> np.ndarray:
        """Average [B, S] values (default ``log_probs``) over segments' trained tokens: [B, G]."""
        values = np.where(self.trained > 0, self.log_probs if values is None else values, 0.0)
        return segment_means(values, self.trained, self.segment_ids, self.rewards.shape[1])[0]

    def tokens(self) -> np.ndarray:
        """Count T, the trained tokens of each segment: [B, G]."""
        return segment_means(self.trained, self.trained, self.segment_ids, self.rewards.shape[1])[1]

    def log_ratios(self, limit: float, log_probs: np.ndarray | None = None) -> np.ndarray:
        """Compute ℓ − ℓ₀ of every token, 0 where not trained, clipped to ± limit: [B, S]."""
        log_probs = self.log_probs if log_probs is None else log_probs
        gap = log_probs.astype(np.float64) - self.old_log_probs
        return np.clip(np.where(self.trained > 0, gap, 0.0), -limit, limit)

    def spread_to_tokens(self, values: np.ndarray) -> np.ndarray:
        """Spread [B, G] numbers to [B, S]: a segment's number on all its tokens, 0 on padding."""
        padded = np.pad(values.astype(np.float64), ((0, 0), (0, 1)))
        columns = np.minimum(self.segment_ids, values.shape[1])
        return np.take_along_axis(padded, columns, axis=1)

    def weighted_segment_sum(self, values: np.ndarray) -> float:
        """Sum the [B, G] losses of segments, weighted by ``segment_weights``."""
        return float((self.segment_weights.astype(np.float64) * values).sum())

    def weighted_token_sum(self, values: np.ndarray) -> float:
        """Sum the [B, S] losses of trained tokens, weighted by ``token_weights``."""
        losses = np.where(self.trained > 0, values, 0.0).astype(np.float64)
        return float((self.token_weights * losses).sum())


def segment_means(
    log_probs: np.ndarray, trained: np.ndarray, segment_ids: np.ndarray, max_segments: int
):
    """Compute m = (1/T) Σ log π(y_t) and T of every segment.

    Args:
        log_probs: [B, S] float32, log π of each label.
        trained: [B, S], 1 where trained.
        segment_ids: [B, S] int.
        max_segments: G.

    Returns:
        m [B, G] and T [B, G], float64.
    """
    rows = len(log_probs)
    sums, tokens = np.zeros((2, rows, max_segments + 1))  # the last column: padding
    index = (np.arange(rows)[:, None], np.minimum(segment_ids, max_segments))
    np.add.at(sums, index, log_probs * trained)
    np.add.at(tokens, index, trained)
    return (sums / np.maximum(tokens, 1.0))[:, :max_segments], tokens[:, :max_segments]


class SegmentCell(nn.Cell):
    """Base of the Cells that multiply by a matrix [B, S, G]: 1 where token s is in segment g.

    Args:
        max_segments: G.
        axis: Where an axis of size 1 is added to [B, …], to make vectors for the product.
    """

    def __init__(self, max_segments: int, axis: int) -> None:
        super().__init__()
        self.max_segments = max_segments
        self.on = Tensor(1.0, ms.float32)
        self.off = Tensor(0.0, ms.float32)
        self.one_hot = ops.OneHot()
        self.batch_matmul = ops.BatchMatMul()
        self.expand, self.squeeze = ops.ExpandDims(), ops.Squeeze(axis)

    def shard(self, parallel_config: Any) -> Self:
        """Divide rows among data-parallel ranks, in semi-automatic parallel mode."""
        dp = int(parallel_config.data_parallel)
        self.one_hot.shard(((dp, 1, 1), (), ()))
        self.batch_matmul.shard(((dp, 1, 1), (dp, 1, 1)))
        self.expand.shard(((dp, 1),))
        self.squeeze.shard(((dp, 1, 1),))
        return self


class SegmentMeans(SegmentCell):
    """Computes every segment's mean m and T; the sums are products with the one-hot matrix."""

    def __init__(self, max_segments: int) -> None:
        super().__init__(max_segments, axis=1)
        self.multiply, self.divide, self.maximum = ops.Mul(), ops.RealDiv(), ops.Maximum()

    def shard(self, parallel_config: Any) -> Self:
        """Divide rows among data-parallel ranks, in semi-automatic parallel mode."""
        dp = int(parallel_config.data_parallel)
        for operator in (self.multiply, self.divide):
            operator.shard(((dp, 1), (dp, 1)))
        self.maximum.shard(((dp, 1), ()))
        return super().shard(parallel_config)

    def construct(self, log_probs, trained, segment_ids):
        """[B, S] log-probs, trained, segment_ids -> m [B, G], T [B, G]."""
        member = self.one_hot(segment_ids, self.max_segments, self.on, self.off)  # [B, S, G]
        sums = self.batch_matmul(self.expand(self.multiply(log_probs, trained), 1), member)
        tokens = self.squeeze(self.batch_matmul(self.expand(trained, 1), member))  # [B, G]
        return self.divide(self.squeeze(sums), self.maximum(tokens, self.on)), tokens


class SegmentsToTokens(SegmentCell):
    """Spreads each segment's number to all its tokens; 0 where the segment id is not below G."""

    def __init__(self, max_segments: int) -> None:
        super().__init__(max_segments, axis=2)

    def construct(self, values, segment_ids):
        """values [B, G], segment_ids [B, S] -> [B, S]."""
        member = self.one_hot(segment_ids, self.max_segments, self.on, self.off)  # [B, S, G]
        return self.squeeze(self.batch_matmul(member, self.expand(values, 2)))


class TokenLogProbs(nn.Cell):
    """Computes log π(label) of every token from full logits, in float32.

    It needs several tensors [B·S, V] float32. ``chunked.ChunkedLogProbs`` does not, but it is
    slower for a small vocabulary.
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
