"""Supervised fine-tuning: cross-entropy of the trained tokens.

    loss = Σ_tokens w_t · ( −log π(y_t) )

w_t is 1 / number of trained tokens of the global batch and comes from the loader, so that uneven
rows, micro-batches and ranks give the gradient of one process.

Source: standard. MindFormers' CrossEntropyLoss divides by the trained tokens of the local batch.
"""

from __future__ import annotations

import numpy as np
from mindspore import nn

from pcl_reasoner.losses import segments

UNIT = segments.TOKEN


def reference(
    log_probs: np.ndarray,
    trained: np.ndarray,
    segment_ids: np.ndarray,
    rewards: np.ndarray,
    segment_weights: np.ndarray,
    token_weights: np.ndarray,
) -> float:
    """The definition, in float64; arguments as in ``opg.reference``, token_weights [B, S]."""
    return float(-(token_weights * trained * log_probs).astype(np.float64).sum())


class SftLoss(nn.Cell):
    """The loss as a graph-mode Cell."""

    def construct(self, log_probs, mean, trained, rewards, segment_weights, token_weights):
        """log_probs, trained, token_weights [B, S] -> scalar; the others are not used."""
        return -(token_weights * trained * log_probs).sum()
