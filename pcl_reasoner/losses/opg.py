"""Offline policy gradient (PCL-Reasoner V1.5).

    m = (1/T) Σ_t log π(y_t)      p = exp(m)
    loss = Σ_segments w · ( r (1 − p) + (1 − r) p )

which is −R·p up to a constant, R = 2r − 1. Its gradient is −R·(p/T)·Σ_t ∇ log π(y_t): bounded,
and fading on wrong responses as p → 0. No importance sampling, no KL term.

Source: PCL-Reasoner V1.5 (arXiv 2601.14716; upstream's opg_trainer.py). Upstream casts the reward
to an integer, uses the first reward of a batch only and cannot run packed; here rewards are
float32, one a segment, and w (1 / number of segments of the global batch) comes from the loader.
"""

from __future__ import annotations

import numpy as np
from mindspore import nn, ops

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
    """The definition, in float64.

    Args:
        log_probs: [B, S], log π of each label.
        trained: [B, S], 1 where trained.
        segment_ids: [B, S] int.
        rewards: [B, G] in [0, 1].
        segment_weights: [B, G], 0 where there is no segment to train.
        token_weights: [B, S]; not used.
    """
    mean, _ = segments.segment_means(log_probs, trained, segment_ids, rewards.shape[1])
    p = np.exp(mean)
    return float((segment_weights * (rewards * (1 - p) + (1 - rewards) * p)).sum())


class OpgLoss(nn.Cell):
    """The loss as a graph-mode Cell."""

    def construct(self, log_probs, mean, trained, rewards, segment_weights, token_weights):
        """mean, rewards, segment_weights [B, G] -> scalar; the other arguments are not used."""
        p = ops.exp(mean)  # [B, G]
        loss = rewards * (1.0 - p) + (1.0 - rewards) * p  # [B, G]
        return (segment_weights * loss).sum()
