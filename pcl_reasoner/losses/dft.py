"""Dynamic fine-tuning: cross-entropy of correct responses, each token weighed by its probability.

    loss = Σ_tokens w_t · r · ( −sg(e^ℓ_t)·ℓ_t ),  ℓ_t = log π(y_t)

sg holds a value fixed while the gradient is taken, so the gradient is −e^ℓ_t ∇ℓ_t: a token that
the policy finds unlikely pulls less than in ``sft``. A fractional reward weighs by its value.

Source: arXiv 2508.05629. w_t is 1 / number of trained tokens of the global batch, incorrect
responses' included, so that equal steps see equal data.
"""

from __future__ import annotations

import numpy as np
from mindspore import nn, ops

from pcl_reasoner.losses.segments import Batch, SegmentsToTokens


def reference(batch: Batch, held: np.ndarray | None = None) -> float:
    """The definition, in float64.

    Args:
        batch: What is given.
        held: [B, S] log-probs at which the tokens' weights are taken; the batch's own when None.
    """
    probability = np.exp(batch.log_probs if held is None else held)
    return batch.over_tokens(-batch.of_segments(batch.rewards) * probability * batch.log_probs)


class DftLoss(nn.Cell):
    """The loss as a graph-mode Cell."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.to_tokens = SegmentsToTokens(places)

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
