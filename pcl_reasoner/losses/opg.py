"""Offline policy gradient (PCL-Reasoner V1.5).

    m = (1/T) Σ_t log π(y_t)      p = exp(m)
    loss = Σ_segments w · ( r (1 − p) + (1 − r) p )

A response's loss is −R·p up to a constant, R = 2r − 1. Its gradient −R·(p/T)·Σ_t ∇ log π(y_t) is
bounded, and for incorrect responses it fades as p → 0. No importance sampling, no KL term.

Source: PCL-Reasoner V1.5 (arXiv 2601.14716; its opg_trainer.py). That code casts the reward
to an integer, uses only the first reward of a batch and cannot train on packed rows. In this module
rewards are float32, one per segment, and the loader gives w, 1 / number of segments of the global
batch.
"""

import numpy as np
from mindspore import nn, ops

from pcl_reasoner.losses.segments import Batch


def reference(batch: Batch) -> float:
    """Compute the loss by its definition, in float64."""
    p, r = np.exp(batch.means()), batch.rewards
    return batch.weighted_segment_sum(r * (1 - p) + (1 - r) * p)


class OpgLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(self, max_segments: int) -> None:
        super().__init__()

    def construct(self, log_probs, mean, rewards, segment_weights, *others):
        """mean, rewards, segment_weights [B, G] -> scalar; the other columns are not used."""
        p = ops.exp(mean)  # [B, G]
        loss = rewards * (1.0 - p) + (1.0 - rewards) * p  # [B, G]
        return (segment_weights * loss).sum()
