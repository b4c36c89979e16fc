"""Group relative policy optimization: a clipped ratio per token, no KL term.

    ρ_t = e^(ℓ_t − ℓ₀_t),  ℓ_t = log π(y_t)
    loss = Σ_segments w · (1/T) Σ_t ( −min( ρ_t·A, clip(ρ_t, 1 − ε_low, 1 + ε_high)·A ) )

ℓ₀ is the log-prob under the old policy, A = (r − mean_G r) / std_G r, w is 1 / number of segments
of the global batch. At ℓ = ℓ₀ the gradient is −A·(1/T) Σ_t ∇ℓ_t. A group (the responses to one
problem) whose rewards are all equal has A = 0 and no gradient.

``on_policy: 1`` is for responses that the policy itself sampled, if exactly one step uses them.
Then ℓ₀ is ℓ, old log-probs are not read, and nothing is clipped:

    ρ_t = e^(ℓ_t − sg(ℓ_t)) = 1
    loss = Σ_segments w · ( −A · (1/T) Σ_t ρ_t )

Its value is −Σ w·A, and a response's gradient is −A·(1/T) Σ_t ∇ℓ_t. sg stops the gradient: its
argument counts as a constant.

Source: arXiv 2402.03300; the larger ε_high and no KL term: DAPO (2503.14476). ℓ − ℓ₀ is
clipped to ±20 to avoid overflow.
"""

from dataclasses import replace

import numpy as np
from mindspore import nn, ops

from pcl_reasoner.losses.ratios import RATIO_LIMIT, ClippedGain, bounded_ratio, clipped_gain
from pcl_reasoner.losses.segments import Batch, SegmentMeans, SegmentsToTokens


def reference(
    batch: Batch,
    eps_low: float,
    eps_high: float,
    on_policy: float,
    weight_log_probs: np.ndarray | None = None,
) -> float:
    """Compute the loss by its definition, in float64.

    Args:
        batch: The inputs of the loss.
        eps_low: Tokens with A < 0 and ρ below 1 − eps_low have no gradient.
        eps_high: Tokens with A > 0 and ρ above 1 + eps_high have no gradient.
        on_policy: 1 if the policy itself sampled the responses, else 0.
        weight_log_probs: [B, S] log-probs in the term sg(ℓ) of ``on_policy``; None for those of
            the batch.
    """
    advantages = batch.spread_to_tokens(batch.advantages)
    if on_policy:
        own = batch.log_probs if weight_log_probs is None else weight_log_probs
        gain = np.exp(replace(batch, old_log_probs=own).log_ratios(RATIO_LIMIT)) * advantages
    else:
        ratio = np.exp(batch.log_ratios(RATIO_LIMIT))
        gain = clipped_gain(ratio, advantages, eps_low, eps_high)
    return -batch.weighted_segment_sum(batch.means(gain))


class GrpoLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(
        self, max_segments: int, eps_low: float, eps_high: float, on_policy: float
    ) -> None:
        super().__init__()
        self.on_policy = bool(on_policy)
        self.to_tokens = SegmentsToTokens(max_segments)
        self.gain = ClippedGain(eps_low, eps_high)
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
        *others,
    ):
        """log_probs, old_log_probs [B, S]; segment_weights, advantages [B, G] -> scalar."""
        if self.on_policy:
            ratio = ops.exp(log_probs - ops.stop_gradient(log_probs))  # [B, S]
            # A is multiplied after the mean: sums of ones are exact in float32.
            mean_ratio, _ = self.means(ratio, trained, segment_ids)  # [B, G]
            segment_means = advantages * mean_ratio
        else:
            ratio = bounded_ratio(log_probs, old_log_probs)  # [B, S]
            gain = self.gain(ratio, self.to_tokens(advantages, segment_ids))  # [B, S]
            segment_means, _ = self.means(gain, trained, segment_ids)  # [B, G]
        return -(segment_weights * segment_means).sum()
