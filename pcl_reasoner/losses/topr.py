"""Tapered off-policy REINFORCE: incorrect responses lose weight as they become less likely.

    loss = Σ_segments w · ( −m if r = 1;  +sg(a)·m if r = 0 ),  a = clip(e^(m − m₀), 0, 1)

m₀ is the mean log-prob under the old policy. sg stops the gradient: its argument counts as a
constant. The effect of an incorrect response fades as the policy makes it less likely. Here a is
normalised by length. ``sequence: 1`` selects the paper's e^(S − S₀) = e^(T (m − m₀)) over the
complete sequence, which at thousands of tokens is 0 or 1 after the slightest change of the policy.

Source: arXiv 2503.14286. A fractional reward counts as both: r parts correct, 1 − r parts
incorrect.
"""

import numpy as np
from mindspore import nn, ops

from pcl_reasoner.losses.segments import Batch, SegmentMeans


def reference(batch: Batch, sequence: float, weight_log_probs: np.ndarray | None = None) -> float:
    """Compute the loss by its definition, in float64.

    Args:
        batch: The inputs of the loss.
        sequence: 1 for the ratio of complete sequences, 0 for the ratio of their means.
        weight_log_probs: [B, S] log-probs for a; those of the batch when None.
    """
    mean, r = batch.means(), batch.rewards
    gap = (
        mean if weight_log_probs is None else batch.means(weight_log_probs)
    ) - batch.old_log_probs_mean
    if sequence:
        gap = gap * batch.tokens()
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
            gap = gap * tokens
        # Clipped before the exponential, so that it cannot overflow.
        a = ops.stop_gradient(ops.exp(ops.minimum(gap, 0.0)))
        return (segment_weights * ((1.0 - rewards) * a - rewards) * mean).sum()
