"""Computes the statistics of each step, separately for correct and incorrect responses.

    columns   count tokens     m    p  weight  entropy  no_advantage  clipped
    correct   [   2     30  -1.0  1.2     0.4     21.0             0        0 ]   sums over the
    incorrect [   1     10  -3.0  0.1     0.0      9.0             1        0 ]   step's segments

m is a response's mean log π per token, and p = e^m. A response's gradient weight,
Σ_t |∂loss / ∂ log π(y_t)|, shows how much the step depends on it; its segment weight is included.
no_advantage counts responses of groups whose rewards are all equal. A token counts as clipped if
the loss has a clip, the advantage is not 0 and the token still has no gradient.
"""

from collections.abc import Mapping
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from pcl_reasoner.losses import LOSSES
from pcl_reasoner.losses.columns import ADVANTAGES, PASS_RATES

COLUMNS = ("count", "tokens", "m", "p", "weight", "entropy", "no_advantage", "clipped")
VERDICTS = ("correct", "incorrect")
"""A response is correct if its reward is at least 0.5."""


class StepFigures(nn.Cell):
    """Computes the sums [verdicts, columns] by two matrix products, as every kernel takes time.

    Args:
        loss_name: A name in LOSSES.
        parameters: The loss's parameters that differ from their defaults.
        loss: The Cell of that loss.
        max_segments: G, segments that a row can hold.
        gradients: Whether gradient weights and clipped tokens are computed. If MindSpore 2.7 splits
            operators over ranks, it cannot compile a gradient inside ``construct``.
    """

    def __init__(
        self,
        loss_name: str,
        parameters: Mapping[str, float],
        loss: Any,
        max_segments: int,
        gradients: bool = True,
    ) -> None:
        super().__init__()
        needs = LOSSES[loss_name].needs(parameters)
        self.by_advantage, self.by_pass_rate = ADVANTAGES in needs, PASS_RATES in needs
        self.has_gradients = gradients
        self.defined = {
            "no_advantage": self.by_advantage or self.by_pass_rate,
            "clipped": gradients and LOSSES[loss_name].clips(parameters),
            "weight": gradients,
        }
        self.loss, self.max_segments = loss, max_segments
        self.gradients = ops.GradOperation(get_all=True)
        self.on = Tensor(1.0, ms.float32)
        self.off = Tensor(0.0, ms.float32)
        self.one_hot = ops.OneHot()
        self.by_segment = ops.BatchMatMul()
        self.by_verdict = ops.BatchMatMul(transpose_b=True)

    def construct(self, tokens, entropies, log_probs, mean, *columns):
        """Trained tokens T [B, G], entropies [B, S], a loss's inputs -> the sums [2, COLUMNS]."""
        rewards, _, _, trained, segment_ids, pass_rates, advantages = columns[:7]
        by_token, by_mean = ops.zeros_like(log_probs), ops.zeros_like(mean)
        no_gradient = ops.zeros_like(log_probs)  # without gradients, no token counts as clipped
        if self.has_gradients:
            found = self.gradients(self.loss)(log_probs, mean, *columns)
            by_token, by_mean = found[0], ops.abs(found[1])
            no_gradient = trained * (by_token == 0).astype(ms.float32)
        per_token = ops.stack((ops.abs(by_token), no_gradient, entropies * trained), 1)  # [B, 3, S]
        member = self.one_hot(segment_ids, self.max_segments, self.on, self.off)  # [B, S, G]
        sums = self.by_segment(per_token, member)  # [B, 3, G]
        no_advantage = self._no_advantage(pass_rates, advantages)
        # A loss depends on tokens or on means, and its gradient by the other is 0 everywhere.
        clipped = sums[:, 1] * (by_mean == 0).astype(ms.float32) * (1.0 - no_advantage)
        weight = sums[:, 0] + by_mean
        ones, entropy = ops.ones_like(mean), sums[:, 2]
        kept = (ones, tokens, mean, ops.exp(mean), weight, entropy, no_advantage, clipped)
        has_token = (tokens > 0).astype(ms.float32)
        correct = has_token * (rewards >= 0.5).astype(ms.float32)
        verdicts = ops.stack((correct, has_token - correct), 1)  # [B, 2, G]
        return self.by_verdict(verdicts, ops.stack(kept, 1)).sum(0)

    def _no_advantage(self, pass_rates, advantages):
        """[B, G], 1 where all rewards of the group are equal, so that no response is preferred."""
        if self.by_advantage:
            return (advantages == 0).astype(ms.float32)
        if self.by_pass_rate:
            return (pass_rates * (1.0 - pass_rates) == 0).astype(ms.float32)
        return ops.zeros_like(pass_rates)
