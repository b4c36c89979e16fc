"""Gradients of several micro-steps, and one update: the Cell itself, in graph mode on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

RATE, EPS = 0.1, 1e-8
START = {"weight": [[1.0, 2.0]], "bias": [3.0]}


class Followed:
    """Two weights, AdamW, and the Cell."""

    def __init__(self, max_norm: float = 1e9) -> None:
        import mindformers  # noqa: F401
        import mindspore as ms
        from mindspore import Parameter, Tensor, nn

        from pcl_reasoner.trainer.cpu_operators import CpuAdamW
        from pcl_reasoner.trainer.round_step import RoundUpdate

        ms.set_context(mode=ms.GRAPH_MODE)
        ms.set_device("CPU")
        self.tensor = Tensor
        parameters = [Parameter(Tensor(np.float32(one)), name) for name, one in START.items()]
        # Groups, as MindFormers makes them.
        groups = [{"params": [one], "weight_decay": 0.0} for one in parameters]
        optimizer = CpuAdamW(groups, learning_rate=RATE, eps=EPS, weight_decay=0.0)
        self.optimizer = optimizer
        self.update = RoundUpdate(optimizer, nn.Identity(), max_norm)
        self.update.set_train(True)

    def step(self, gradient: float, last: bool, loss: float = 1.0) -> tuple[float, bool, float]:
        """A micro-step whose gradient is the same number everywhere."""
        import mindspore as ms

        self.update.last.set_data(self.tensor(int(last), ms.int32))
        gradients = tuple(
            self.tensor(np.full_like(np.float32(one), gradient)) for one in START.values()
        )
        found = self.update(self.tensor(np.float32(loss)), gradients)
        value, overflow, norm = (float(one.asnumpy().ravel()[0]) for one in found)
        return value, bool(overflow), norm

    @property
    def weights(self) -> list[float]:
        return np.concatenate([one.asnumpy().ravel() for one in self.optimizer.parameters]).tolist()

    @property
    def totals(self) -> list[float]:
        return np.concatenate([one.asnumpy().ravel() for one in self.update.totals]).tolist()

    @property
    def steps(self) -> int:
        return int(self.optimizer.global_step.asnumpy())


def adam(gradients: list[float]) -> float:
    """How far a weight is moved by AdamW's steps, by hand; betas 0.9 and 0.999."""
    first = second = moved = 0.0
    for step, gradient in enumerate(gradients, 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        size = (second / (1 - 0.999**step)) ** 0.5
        moved -= RATE * first / (1 - 0.9**step) / (size + EPS)
    return moved


@pytest.fixture(scope="module")
def cell() -> Any:
    return Followed()


def test_only_the_last_micro_step_updates_and_the_totals_are_cleared(cell: Any) -> None:
    """Then an overflow in a first micro-step, and NaN in a last one: neither leaves anything."""
    assert cell.step(0.5, last=False, loss=7.0) == (7.0, False, 0.0)
    assert cell.step(0.25, last=False) == (1.0, False, 0.0)
    assert (cell.weights, cell.totals, cell.steps) == ([1.0, 2.0, 3.0], [0.75] * 3, 0)
    # 0.5 + 0.25 + 0.25 = 1 everywhere: the norm is sqrt(3).
    _, overflow, norm = cell.step(0.25, last=True)
    assert (overflow, norm) == (False, pytest.approx(3**0.5))
    moved = adam([1.0])
    assert cell.weights == pytest.approx([1 + moved, 2 + moved, 3 + moved], rel=1e-6)
    assert (cell.totals, cell.steps) == ([0.0] * 3, 1)

    before = cell.weights
    for values in ([1e30, 1.0], [1.0, float("nan")], [float("inf"), 1.0]):
        cell.step(values[0], last=False)
        _, overflow, norm = cell.step(values[1], last=True)
        assert overflow and not np.isfinite(norm)
        assert (cell.weights, cell.totals, cell.steps) == (before, [0.0] * 3, 1)

    assert cell.step(2.0, last=True)[1:] == (False, pytest.approx(2 * 3**0.5))
    moved = adam([1.0, 2.0])
    assert cell.weights == pytest.approx([1 + moved, 2 + moved, 3 + moved], rel=1e-6)


def test_a_zero_gradient_is_a_step(cell: Any) -> None:
    steps, before = cell.steps, cell.weights
    assert cell.step(0.0, last=True)[1:] == (False, 0.0)
    assert cell.steps == steps + 1
    assert cell.weights != before  # by its first moment


def test_the_sum_is_clipped_and_not_its_parts() -> None:
    """2 and −1 in two micro-steps: the sum 1 has the norm sqrt(3), and is clipped to 0.5."""
    clipped = Followed(max_norm=0.5)
    clipped.step(2.0, last=False)
    _, _, norm = clipped.step(-1.0, last=True)
    assert norm == pytest.approx(3**0.5)
    # AdamW's first step hides the size; its first moment shows it.
    (first, *_) = [one.asnumpy().ravel() for one in clipped.optimizer.exp_avg]
    assert first.tolist() == pytest.approx([0.1 * 0.5 / 3**0.5] * 2, rel=1e-5)
