"""Negative-aware fine-tuning: incorrect responses train an implicit negative policy.

    ρ = e^(ℓ_t − ℓ₀_t),  x₊ = ρ,  x₋ = (1 − q̂ρ) / (1 − q̂),  x̃ = x + sg(max(x, ε) − x)
    loss = Σ_segments w · (1 − q̂) · (1/T) Σ_t ( −log x̃₊ if r = 1;  −log x̃₋ if r = 0 )

ℓ₀ is the log-prob under the old policy, q̂ the group's pass rate, clipped to [0.02, 0.98]. sg stops
the gradient: its argument counts as a constant. So a token whose x is below ε still has the
gradient −∇x / ε. This gradient is needed where the policy has made an incorrect token much
likelier, because x₋ falls below 0 there.

Source: arXiv 2505.18116; the authors' script uses ε = 0 for correct and 1 for incorrect responses.
w is 1 / number of segments of the global batch. ℓ − ℓ₀ is clipped to ±20 to avoid overflow. For
0 < r < 1 the term is r · (term for r = 1) + (1 − r) · (term for r = 0).
"""

import numpy as np
from mindspore import nn, ops

from pcl_reasoner.losses.ratios import RATIO_LIMIT, bounded_ratio
from pcl_reasoner.losses.segments import Batch, SegmentMeans, SegmentsToTokens

LOWEST_RATE, HIGHEST_RATE = 0.02, 0.98


def reference(
    batch: Batch,
    eps_correct: float,
    eps_incorrect: float,
    weight_log_probs: np.ndarray | None = None,
) -> float:
    """Compute the loss by its definition, in float64.

    Args:
        batch: The inputs of the loss.
        eps_correct: ε of correct responses.
        eps_incorrect: ε of incorrect responses.
        weight_log_probs: [B, S] log-probs in the term max(x, ε) − x; None for those of the batch.
    """
    rate = np.clip(batch.pass_rates.astype(np.float64), LOWEST_RATE, HIGHEST_RATE)
    q, r = batch.spread_to_tokens(rate), batch.spread_to_tokens(batch.rewards)

    def ratios(log_probs: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        ratio = np.exp(batch.log_ratios(RATIO_LIMIT, log_probs))
        return ratio, (1 - q * ratio) / (1 - q)

    losses = np.zeros_like(q)
    eps = (eps_correct, eps_incorrect)
    constants = ratios(weight_log_probs)
    for share, x, constant, low in zip((r, 1 - r), ratios(None), constants, eps, strict=True):
        losses = losses - share * np.log(x + (np.maximum(constant, low) - constant))
    return batch.weighted_segment_sum((1 - rate) * batch.means(losses))


class NftLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(self, max_segments: int, eps_correct: float, eps_incorrect: float) -> None:
        super().__init__()
        self.eps_correct, self.eps_incorrect = eps_correct, eps_incorrect
        self.to_tokens = SegmentsToTokens(max_segments)
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
        """log_probs, old_log_probs [B, S]; rewards, pass_rates [B, G] -> scalar."""
        rate = ops.clamp(pass_rates, LOWEST_RATE, HIGHEST_RATE)  # [B, G]
        q = self.to_tokens(rate, segment_ids)  # [B, S]
        r = self.to_tokens(rewards, segment_ids)  # [B, S]
        ratio = bounded_ratio(log_probs, old_log_probs)  # [B, S]
        correct = self._log(ratio, self.eps_correct)
        incorrect = self._log((1.0 - q * ratio) / (1.0 - q), self.eps_incorrect)
        segment_means, _ = self.means(-r * correct - (1.0 - r) * incorrect, trained, segment_ids)
        return (segment_weights * (1.0 - rate) * segment_means).sum()

    def _log(self, x, low):
        """Compute log x̃: its value is log max(x, low), its gradient is ∇x / max(x, low)."""
        kept = ops.stop_gradient(ops.maximum(x, low))
        # Not log(x + sg(…)): at x = −1e8 float32 rounds that sum to 0.
        return ops.log(kept) + (x - ops.stop_gradient(x)) / kept
