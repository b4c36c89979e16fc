"""Signed log-likelihood: imitate right responses, push wrong ones away at a lower weight (REDI).

    loss = Σ_segments w · ( −w₊·m if r = 1;  +w₋·m if r = 0 ),  m = (1/T) Σ_t log π(y_t)

Its second term has no bound: on wrong responses the push does not fade as it does in ``opg``, so
the learning rate must be small (1e-6 in the source).

Source: REDI (arXiv 2505.24850), w₊ = 1, w₋ = 0.8. A fractional reward counts as both: r parts
right, 1 − r parts wrong.
"""

from __future__ import annotations

from mindspore import nn

from pcl_reasoner.losses.segments import Batch


def reference(batch: Batch, weight_right: float, weight_wrong: float) -> float:
    """The definition, in float64.

    Args:
        batch: What is given.
        weight_right: w₊.
        weight_wrong: w₋.
    """
    r = batch.rewards
    return batch.over_segments((weight_wrong * (1 - r) - weight_right * r) * batch.means())


class SignedNllLoss(nn.Cell):
    """The loss as a graph-mode Cell."""

    def __init__(self, places: int, weight_right: float, weight_wrong: float) -> None:
        super().__init__()
        self.weight_right, self.weight_wrong = weight_right, weight_wrong

    def construct(self, log_probs, mean, rewards, segment_weights, *others):
        """mean, rewards, segment_weights [B, G] -> scalar; the other columns are not used."""
        signed = self.weight_wrong * (1.0 - rewards) - self.weight_right * rewards
        return (segment_weights * signed * mean).sum()
