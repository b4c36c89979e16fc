"""Rejection-sampling fine-tuning: imitate the right responses.

    loss = Σ_segments w · ( −m if r = 1 else 0 ),  m = (1/T) Σ_t log π(y_t)

Source: arXiv 2308.01825. A fractional reward weighs by its value. w is 1 / number of segments of
the global batch, wrong ones included, so that equal steps of ``rft`` and ``opg`` see equal data.
"""

from __future__ import annotations

import numpy as np
from mindspore import nn

from pcl_reasoner.losses import segments

UNIT = segments.SEGMENT


def reference(
    log_probs: np.ndarray,
    trained: np.ndarray,
    segment_ids: np.ndarray,
    rewards: np.ndarray,
    segment_weights: np.ndarray,
    token_weights: np.ndarray,
) -> float:
    """The definition, in float64; arguments as in ``opg.reference``."""
    mean, _ = segments.segment_means(log_probs, trained, segment_ids, rewards.shape[1])
    return float((segment_weights * rewards * -mean).sum())


class RftLoss(nn.Cell):
    """The loss as a graph-mode Cell."""

    def construct(self, log_probs, mean, trained, rewards, segment_weights, token_weights):
        """mean, rewards, segment_weights [B, G] -> scalar; the other arguments are not used."""
        return -(segment_weights * rewards * mean).sum()
