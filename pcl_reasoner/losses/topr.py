"""Tapered off-policy REINFORCE: incorrect responses lose weight as they become less likely.

    loss = Σ_segments w · ( −m if r = 1;  +sg(a)·m if r = 0 ),  a = clip(e^(m − m₀), 0, 1)

m and m₀ are a response's mean log-prob under the policy and the old policy. w is 1 / number of
segments of the global batch. sg stops the gradient: its argument counts as a constant. The effect
of an incorrect response fades as the policy makes it less likely. ``sequence: 1`` selects the
paper's loss of complete sequences: S = T·m in place of m, in the ratio and in the sum. With it, at
thousands of tokens, a is near 0 or 1 after the slightest change of the policy, and gradients are T
times as large.

Source: arXiv 2503.14286. For 0 < r < 1 the term is r · (term for r = 1) + (1 − r) ·
(term for r = 0).
"""

import numpy as np
from mindspore import nn, ops

from pcl_reasoner.losses.segments import Batch, SegmentMeans


def reference(batch: Batch, sequence: float, weight_log_probs: np.ndarray | None = None) -> float:
    """Compute the loss by its definition, in float64.

    Args:
        batch: The inputs of the loss.
        sequence: 1 for complete sequences (S = T·m), 0 for means per token.
        weight_log_probs: [B, S] log-probs from which a is computed; None for the batch's.
    """
    mean, r = batch.means(), batch.rewards
    gap = batch.means(weight_log_probs) - batch.old_log_probs_mean
    if sequence:
        gap, mean = gap * batch.tokens(), mean * batch.tokens()
    a = np.exp(np.minimum(gap, 0.0))
    return batch.weighted_segment_sum(((1 - r) * a - r) * mean)


class ToprLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(self, max_segments: int, sequence: float) -> None:
        super().__init__()
        self.sequence = bool(sequence)
        self.means = SegmentMeans(max_segments)

    def construct(
        self,
        log_probs,
        mean,
        rewards,
        segment_weights,
        token_weights,
        trained,
        segment_ids,
        pass_rates,
        advantages,
        old_log_probs,
        old_log_probs_mean,
    ):
        """mean, rewards, segment_weights, old_log_probs_mean [B, G] -> scalar."""
        gap = mean - old_log_probs_mean  # [B, G]
        if self.sequence:
            _, tokens = self.means(log_probs, trained, segment_ids)
            gap, mean = gap * tokens, mean * tokens
        # Clipped before the exponential, so that it cannot overflow.
        a = ops.stop_gradient(ops.exp(ops.minimum(gap, 0.0)))
        return (segment_weights * ((1.0 - rewards) * a - rewards) * mean).sum()
