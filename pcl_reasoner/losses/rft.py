"""Rejection-sampling fine-tuning: imitate the correct responses.

    loss = Σ_segments w · ( −m if r = 1;  0 if r = 0 ),  m = (1/T) Σ_t log π(y_t)

Source: arXiv 2308.01825. A reward between 0 and 1 gives −r·m. w is 1 / number of segments of
the global batch, incorrect ones included: they stay in the data, so that step k of ``rft`` and
step k of ``opg`` have the same rows.
"""

from mindspore import nn

from pcl_reasoner.losses.segments import Batch


def reference(batch: Batch) -> float:
    """Compute the loss by its definition, in float64."""
    return batch.weighted_segment_sum(-batch.rewards * batch.means())


class RftLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(self, max_segments: int) -> None:
        super().__init__()

    def construct(self, log_probs, mean, rewards, segment_weights, *others):
        """mean, rewards, segment_weights [B, G] -> scalar; the other columns are not used."""
        return -(segment_weights * rewards * mean).sum()
