"""Signed log-likelihood (REDI): imitate correct responses, avoid incorrect ones less strongly.

    loss = Σ_segments w · ( −w₊·m if r = 1;  +w₋·m if r = 0 ),  m = (1/T) Σ_t log π(y_t)

The second term has no bound: on incorrect responses the gradient does not fade as in ``opg``, so
the learning rate must be small (1e-6 in the source).

Source: REDI (arXiv 2505.24850), w₊ = 1, w₋ = 0.8. w is 1 / number of segments of the global
batch. For 0 < r < 1 the term is r · (term for r = 1) + (1 − r) · (term for r = 0).
"""

from mindspore import nn

from pcl_reasoner.losses.segments import Batch


def reference(batch: Batch, weight_correct: float, weight_incorrect: float) -> float:
    """Compute the loss by its definition, in float64.

    Args:
        batch: The inputs of the loss.
        weight_correct: w₊.
        weight_incorrect: w₋.
    """
    r = batch.rewards
    return batch.weighted_segment_sum(
        (weight_incorrect * (1 - r) - weight_correct * r) * batch.means()
    )


class SignedNllLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(self, max_segments: int, weight_correct: float, weight_incorrect: float) -> None:
        super().__init__()
        self.weight_correct, self.weight_incorrect = weight_correct, weight_incorrect

    def construct(self, log_probs, mean, rewards, segment_weights, *others):
        """mean, rewards, segment_weights [B, G] -> scalar; the other columns are not used."""
        signed = self.weight_incorrect * (1.0 - rewards) - self.weight_correct * rewards
        return (segment_weights * signed * mean).sum()
