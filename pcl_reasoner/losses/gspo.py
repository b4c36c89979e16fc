"""Group sequence policy optimization: one clipped ratio a response.

    s = e^(m − m₀)
    loss = Σ_segments w · ( −min( s·A, clip(s, 1 − ε_low, 1 + ε_high)·A ) )

m₀ is the mean log-prob under the old policy, A the advantage in the group. Beyond the clip a
response gives no gradient. The source's ε are for samples that are a few steps old; with samples
of the starting policy alone s soon leaves them, and larger ones are needed.

Source: arXiv 2507.18071 (ε 3e-4 and 4e-4). m − m₀ is cut off at ±20 against overflow.
"""

from __future__ import annotations

import numpy as np
from mindspore import nn

from pcl_reasoner.losses.ratios import RATIO_LIMIT, ClippedGain, bounded_ratio, clipped_gain
from pcl_reasoner.losses.segments import Batch


def reference(batch: Batch, eps_low: float, eps_high: float) -> float:
    """The definition, in float64.

    Args:
        batch: What is given.
        eps_low: How far s may fall below 1 where that lowers the loss.
        eps_high: How far it may rise above 1 where that lowers the loss.
    """
    gap = np.clip(batch.means() - batch.old_log_probs_mean, -RATIO_LIMIT, RATIO_LIMIT)
    return -batch.over_segments(clipped_gain(np.exp(gap), batch.advantages, eps_low, eps_high))


class GspoLoss(nn.Cell):
    """The loss as a graph-mode Cell."""

    def __init__(self, places: int, eps_low: float, eps_high: float) -> None:
        super().__init__()
        self.gain = ClippedGain(eps_low, eps_high)

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
        """mean, segment_weights, advantages, old_log_probs_mean [B, G] -> scalar."""
        ratio = bounded_ratio(mean, old_log_probs_mean)  # [B, G]
        return -(segment_weights * self.gain(ratio, advantages)).sum()
