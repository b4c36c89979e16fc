"""Ratios of the policy to the old policy, and their clipping, in NumPy and as Cells."""

import numpy as np
from mindspore import nn, ops

RATIO_LIMIT = 20.0
"""Log-ratios are clipped to ± this value. Ratios are then at most e^20 = 4.9e8. The
squares of gradients, summed for the gradient norm, stay finite in float32."""


def clipped_gain(
    ratio: np.ndarray, advantages: np.ndarray, eps_low: float, eps_high: float
) -> np.ndarray:
    """Compute min(ρ·A, clip(ρ, 1 − ε_low, 1 + ε_high)·A) elementwise, in NumPy."""
    clipped = np.clip(ratio, 1 - eps_low, 1 + eps_high)
    return np.minimum(ratio * advantages, clipped * advantages)


class ClippedGain(nn.Cell):
    """Computes min(ρ·A, clip(ρ, 1 − ε_low, 1 + ε_high)·A), elementwise.

    It is written as A₊·min(ρ, 1 + ε_high) + A₋·max(ρ, 1 − ε_low), which is equal. At ρ = 1 the two
    sides of the outer min are equal, so its gradient would depend on how an operator breaks ties.
    """

    def __init__(self, eps_low: float, eps_high: float) -> None:
        super().__init__()
        self.lowest, self.highest = 1.0 - eps_low, 1.0 + eps_high

    def construct(self, ratio, advantages):
        """ratio and advantages, of equal shapes -> a tensor of the same shape."""
        correct = ops.maximum(advantages, 0.0) * ops.minimum(ratio, self.highest)
        incorrect = ops.minimum(advantages, 0.0) * ops.maximum(ratio, self.lowest)
        return correct + incorrect


def bounded_ratio(log_probs, old):
    """Compute e^(ℓ − ℓ₀) or e^(m − m₀) in a Cell, the exponent clipped to ± RATIO_LIMIT."""
    return ops.exp(ops.clamp(log_probs - old, -RATIO_LIMIT, RATIO_LIMIT))
