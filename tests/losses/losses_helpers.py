"""A batch of packed rows, and each loss as one graph-mode Cell, as NumPy and as PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import Tensor, nn

from pcl_reasoner.losses import LOSSES
from pcl_reasoner.losses.segments import SegmentMeans


@dataclass(frozen=True)
class Batch:
    """What a loss takes, in the order in which it takes it; shapes as in losses/segments.py."""

    log_probs: np.ndarray
    trained: np.ndarray
    segment_ids: np.ndarray
    rewards: np.ndarray
    segment_weights: np.ndarray
    token_weights: np.ndarray

    def arrays(self) -> tuple[np.ndarray, ...]:
        return (
            self.log_probs,
            self.trained,
            self.segment_ids,
            self.rewards,
            self.segment_weights,
            self.token_weights,
        )

    def with_log_probs(self, log_probs: np.ndarray) -> Batch:
        return replace(self, log_probs=log_probs)


def batch_of(rows: list[list[tuple[list[float | None], float]]], length: int, places: int) -> Batch:
    """Rows of segments (log-probs, None where not trained; reward), weighed as the loader does.

    Padding gets the id after the last segment, at most ``places``, and log-probs that would show
    if they were counted.
    """
    shape = (len(rows), length)
    log_probs = np.full(shape, -3.0, np.float32)
    trained = np.zeros(shape, np.float32)
    segment_ids = np.empty(shape, np.int32)
    rewards = np.zeros((len(rows), places), np.float32)
    has_token = np.zeros((len(rows), places), np.float32)
    for index, row in enumerate(rows):
        segment_ids[index] = min(len(row), places)
        start = 0
        for number, (values, reward) in enumerate(row):
            for place, value in enumerate(values, start):
                log_probs[index, place] = -5.0 if value is None else value
                trained[index, place] = value is not None
            segment_ids[index, start : start + len(values)] = number
            rewards[index, number] = reward
            has_token[index, number] = any(value is not None for value in values)
            start += len(values)
    return Batch(
        log_probs,
        trained,
        segment_ids,
        rewards,
        has_token / max(1.0, has_token.sum()),
        trained / max(1.0, trained.sum()),
    )


def drawn_batch(seed: int = 0) -> Batch:
    """Two rows: three segments and padding; four segments, one of them without a trained token."""
    rng = np.random.default_rng(seed)

    def draw(prompt: int, response: int) -> list[float | None]:
        return [None] * prompt + [float(x) for x in -rng.exponential(0.7, response)]

    rows = [
        [(draw(2, 3), 1.0), (draw(1, 5), 0.0), (draw(1, 1), 0.3)],
        [(draw(0, 4), 0.0), (draw(3, 0), 1.0), (draw(1, 6), 1.0), (draw(1, 1), 0.75)],
    ]
    return batch_of(rows, length=18, places=4)


def graph_mode() -> None:
    """Compile what is called from here on, for the CPU."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")


class WholeLoss(nn.Cell):
    """Segment means, then the loss Cell, as the model runs them."""

    def __init__(self, name: str, places: int) -> None:
        super().__init__()
        self.means = SegmentMeans(places)
        module = importlib.import_module(f"pcl_reasoner.losses.{name}")
        self.loss = getattr(module, LOSSES[name])()

    def construct(self, log_probs, trained, segment_ids, rewards, segment_weights, token_weights):
        mean, _ = self.means(log_probs, trained, segment_ids)
        return self.loss(log_probs, mean, trained, rewards, segment_weights, token_weights)


def cell(name: str, batch: Batch) -> tuple[float, np.ndarray]:
    """The Cell's loss and its gradient by log_probs, in graph mode."""
    graph_mode()
    both = ms.value_and_grad(WholeLoss(name, batch.rewards.shape[1]), grad_position=0)
    value, gradient = both(*(Tensor(array) for array in batch.arrays()))
    return float(value.asnumpy()), gradient.asnumpy()


def reference(name: str, batch: Batch) -> float:
    """The NumPy definition."""
    found: Callable[..., float] = importlib.import_module(f"pcl_reasoner.losses.{name}").reference
    return found(*batch.arrays())


def finite_differences(name: str, batch: Batch, step: float = 1e-5) -> np.ndarray:
    """The gradient of the NumPy definition by log_probs, in float64."""
    base = batch.log_probs.astype(np.float64)
    gradient = np.zeros_like(base)
    for place in np.ndindex(*base.shape):
        up, down = base.copy(), base.copy()
        up[place] += step
        down[place] -= step
        more, less = (reference(name, batch.with_log_probs(x)) for x in (up, down))
        gradient[place] = (more - less) / (2 * step)
    return gradient


def torch_loss(name: str, batch: Batch) -> tuple[float, np.ndarray]:
    """The loss written a third time, segment by segment, and its gradient by autograd (float64)."""
    log_probs = torch.tensor(batch.log_probs, dtype=torch.float64, requires_grad=True)
    total = torch.zeros((), dtype=torch.float64)
    for row, number in np.ndindex(*batch.rewards.shape):
        chosen = (batch.segment_ids[row] == number) & (batch.trained[row] > 0)
        if not chosen.any():
            continue
        of_segment = log_probs[row][torch.from_numpy(chosen)]
        m, r = of_segment.mean(), float(batch.rewards[row, number])
        weight = float(batch.segment_weights[row, number])
        if name == "opg":
            total = total - weight * (2 * r - 1) * m.exp() + weight * r
        elif name == "rft":
            total = total - weight * r * m
        else:
            weights = torch.from_numpy(batch.token_weights[row][chosen].astype(np.float64))
            total = total - (weights * of_segment).sum()
    total.backward()
    gradient: Any = log_probs.grad
    return float(total.detach()), gradient.numpy()
