"""Supervised fine-tuning: cross-entropy of the trained tokens.

    loss = Σ_tokens w_t · ( −log π(y_t) )

w_t is 1 / number of trained tokens of the global batch and comes from the loader. So uneven rows,
micro-batches and ranks give the same gradient as a single process.

Source: standard. MindFormers' CrossEntropyLoss divides by the trained tokens of the local batch.
"""

from mindspore import nn

from pcl_reasoner.losses.segments import Batch


def reference(batch: Batch) -> float:
    """Compute the loss by its definition, in float64."""
    return batch.weighted_token_sum(-batch.log_probs)


class SftLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(self, max_segments: int) -> None:
        super().__init__()

    def construct(self, log_probs, mean, rewards, segment_weights, token_weights, trained, *others):
        """log_probs, token_weights, trained [B, S] -> scalar; the other columns are not used."""
        return -(token_weights * trained * log_probs).sum()
