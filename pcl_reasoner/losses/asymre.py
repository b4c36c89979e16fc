"""Asymmetric REINFORCE: a baseline below the group's mean reward.

    loss = Σ_segments w · ( −(r − V)·m ),  V = mean_G r + δ,  m = (1/T) Σ_t log π(y_t)

r is the reward, w is 1 / number of segments of the global batch. With δ < 0 correct responses weigh
more than incorrect ones. For off-policy training, the authors find that a baseline V at or above
the mean reward (δ ≥ 0) leads to collapse, and that a baseline below it improves the policy.

Source: arXiv 2506.20520. The column ``pass_rates`` has mean_G r, the problem's mean reward.
"""

from mindspore import nn

from pcl_reasoner.losses.segments import Batch


def reference(batch: Batch, delta: float) -> float:
    """Compute the loss by its definition, in float64.

    Args:
        batch: The inputs of the loss.
        delta: δ, added to the group's mean reward.
    """
    return batch.weighted_segment_sum((batch.pass_rates + delta - batch.rewards) * batch.means())


class AsymreLoss(nn.Cell):
    """Computes the loss in graph mode."""

    def __init__(self, max_segments: int, delta: float) -> None:
        super().__init__()
        self.delta = delta

    def construct(
        self,
        log_probs,
        mean,
        rewards,
        segment_weights,
        token_weights,
        trained,
        segment_ids,
        pass_rates,
        *others,
    ):
        """mean, rewards, segment_weights, pass_rates [B, G] -> scalar; others are not used."""
        return (segment_weights * (pass_rates + self.delta - rewards) * mean).sum()
