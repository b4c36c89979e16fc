"""Tapered off-policy REINFORCE: correct responses as they are, incorrect ones while likely.

    loss = Σ_segments w · ( −m if r = 1;  +sg(a)·m if r = 0 ),  a = clip(e^(m − m₀), 0, 1)

m₀ is the mean under the old policy, sg holds a value fixed while the gradient is taken. The
push on an incorrect response fades as the policy leaves it. a is normalised by length; the paper's
e^(S − S₀) = e^(T (m − m₀)), over the whole sequence, is ``sequence: 1``: at thousands of tokens it
is 0 or 1 after the slightest move.

Source: arXiv 2503.14286. A fractional reward counts as both: r parts correct, 1 − r parts
incorrect.
"""

from __future__ import annotations

import numpy as np
from mindspore import nn, ops

from pcl_reasoner.losses.segments import Batch, SegmentMeans


def reference(batch: Batch, sequence: float, held: np.ndarray | None = None) -> float:
    """The definition, in float64.

    Args:
        batch: What is given.
        sequence: 1 for the ratio of whole sequences, 0 for that of their means.
        held: [B, S] log-probs at which a is taken; the batch's own when None.
    """
    mean, r = batch.means(), batch.rewards
    gap = (mean if held is None else batch.means(held)) - batch.old_log_probs_mean
    if sequence:
        gap = gap * batch.tokens()
    a = np.exp(np.minimum(gap, 0.0))
    return batch.over_segments(((1 - r) * a - r) * mean)


class ToprLoss(nn.Cell):
    """The loss as a graph-mode Cell."""

    def __init__(self, places: int, sequence: float) -> None:
        super().__init__()
        self.sequence = bool(sequence)
        self.means = SegmentMeans(places)

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
        # Cut off before the exponential: it cannot overflow.
        a = ops.stop_gradient(ops.exp(ops.minimum(gap, 0.0)))
        return (segment_weights * ((1.0 - rewards) * a - rewards) * mean).sum()
