"""Group sequence policy optimization: one clipped ratio per response.

    s = e^(m − m₀)
    loss = Σ_segments w · ( −min( s·A, clip(s, 1 − ε_low, 1 + ε_high)·A ) )

m and m₀ are a response's mean log-prob under the policy and the old policy, A is its advantage in
its group, w is 1 / number of segments of the global batch. Beyond the clip, a response has no
gradient. The source's ε are for samples that are a few steps old. When all samples come from the
starting policy, s soon leaves 1 ± ε, and larger ε are needed.

Source: arXiv 2507.18071 (ε 3e-4 and 4e-4). m − m₀ is clipped to ±20 to avoid overflow.
"""

import numpy as np
from mindspore import nn

from pcl_reasoner.losses.ratios import RATIO_LIMIT, ClippedGain, bounded_ratio, clipped_gain
from pcl_reasoner.losses.segments import Batch


def reference(batch: Batch, eps_low: float, eps_high: float) -> float:
    """Compute the loss by its definition, in float64.

    Args:
        batch: The inputs of the loss.
        eps_low: Responses with A < 0 and s below 1 − eps_low have no gradient.
        eps_high: Responses with A > 0 and s above 1 + eps_high have no gradient.
    """
    gap = np.clip(batch.means() - batch.old_log_probs_mean, -RATIO_LIMIT, RATIO_LIMIT)
    return -batch.weighted_segment_sum(
        clipped_gain(np.exp(gap), batch.advantages, eps_low, eps_high)
    )


class GspoLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(self, max_segments: int, eps_low: float, eps_high: float) -> None:
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
