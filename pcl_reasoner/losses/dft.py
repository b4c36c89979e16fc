"""Dynamic fine-tuning: cross-entropy of correct responses, each token weighted by its probability.

    loss = Σ_tokens w_t · r · ( −sg(e^ℓ_t)·ℓ_t ),  ℓ_t = log π(y_t)

sg stops the gradient: its argument counts as a constant. So the bracket has gradient −e^ℓ_t ∇ℓ_t: a
token that is unlikely under the policy has less effect than in ``sft``. A fractional reward acts as
a weight.

Source: arXiv 2508.05629. w_t is 1 / number of trained tokens of the global batch, including
those of incorrect responses, which stay in the data: step k has the same rows with every loss.
"""

import numpy as np
from mindspore import nn, ops

from pcl_reasoner.losses.segments import Batch, SegmentsToTokens


def reference(batch: Batch, weight_log_probs: np.ndarray | None = None) -> float:
    """Compute the loss by its definition, in float64.

    Args:
        batch: The inputs of the loss.
        weight_log_probs: [B, S] log-probs from which the weights e^ℓ_t are computed; None for
            the batch's.
    """
    probability = np.exp(batch.log_probs if weight_log_probs is None else weight_log_probs)
    return batch.weighted_token_sum(
        -batch.spread_to_tokens(batch.rewards) * probability * batch.log_probs
    )


class DftLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(self, max_segments: int) -> None:
        super().__init__()
        self.to_tokens = SegmentsToTokens(max_segments)

    def construct(
        self,
        log_probs,
        mean,
        rewards,
        segment_weights,
        token_weights,
        trained,
        segment_ids,
        *others,
    ):
        """log_probs, token_weights, trained, segment_ids [B, S]; rewards [B, G] -> scalar."""
        probability = ops.stop_gradient(ops.exp(log_probs))  # [B, S]
        r = self.to_tokens(rewards, segment_ids)  # [B, S]
        return -(token_weights * trained * r * probability * log_probs).sum()
