"""A batch of packed rows, and each loss as one graph-mode Cell, as NumPy and as PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import Tensor, nn

from pcl_reasoner.losses import LOSSES, VARIANTS, build_loss
from pcl_reasoner.losses.segments import Batch, SegmentMeans, segment_means

Segment = dict[str, Any]
"""``values`` (log-probs, None where not trained), ``reward``, and optionally ``pass_rate``,
``advantage`` and ``old_log_probs`` (log-probs like ``values``; left out, they are a little off)."""


def segment(values: list[float | None], reward: float, **others: Any) -> Segment:
    return {"values": values, "reward": reward, **others}


def batch_of(rows: list[list[Any]], length: int, places: int) -> Batch:
    """Rows of segments ((values, reward) for short), weighed as the loader does.

    Padding gets the id after the last segment, at most ``places``. Log-probs of padding and of
    untrained tokens, the old ones too, would show if they were counted.
    """
    tokens, per_segment = (len(rows), length), (len(rows), places)
    log_probs, olds = np.full(tokens, -3.0, np.float32), np.full(tokens, -95.0, np.float32)
    trained, segment_ids = np.zeros(tokens, np.float32), np.empty(tokens, np.int32)
    rewards, pass_rates, advantages, has_token = np.zeros((4, *per_segment), np.float32)
    for index, row in enumerate(rows):
        segment_ids[index] = min(len(row), places)
        start = 0
        for number, given in enumerate(row):
            made = given if isinstance(given, dict) else segment(*given)
            values = made["values"]
            before = made.get("old", [x and 0.9 * x - 0.05 for x in values])
            for place, (value, old) in enumerate(zip(values, before, strict=True), start):
                log_probs[index, place] = -5.0 if value is None else value
                olds[index, place] = -95.0 if value is None else old
                trained[index, place] = value is not None
            segment_ids[index, start : start + len(values)] = number
            rewards[index, number] = made["reward"]
            pass_rates[index, number] = made.get("pass_rate", 0.5)
            advantages[index, number] = made.get("advantage", 2 * made["reward"] - 1)
            has_token[index, number] = any(value is not None for value in values)
            start += len(values)
    old_log_probs_mean, _ = segment_means(olds, trained, segment_ids, places)
    return Batch(
        log_probs=log_probs,
        trained=trained,
        segment_ids=segment_ids,
        rewards=rewards,
        segment_weights=has_token / max(1.0, has_token.sum()),
        token_weights=trained / max(1.0, trained.sum()),
        pass_rates=pass_rates,
        advantages=advantages,
        old_log_probs=olds,
        old_log_probs_mean=old_log_probs_mean.astype(np.float32),
    )


def drawn_batch(seed: int = 0) -> Batch:
    """Two rows: three segments and padding; four segments, one of them without a trained token."""
    rng = np.random.default_rng(seed)

    def draw(prompt: int, response: int, reward: float) -> Segment:
        values = -rng.exponential(0.7, response)
        old = values + rng.normal(0, 0.3, response)
        rate = float(rng.uniform(0.1, 0.9))
        return segment(
            [None] * prompt + values.tolist(),
            reward,
            old=[None] * prompt + old.tolist(),
            pass_rate=rate,
            advantage=(reward - rate) / 0.4,
        )

    rows = [
        [draw(2, 3, 1.0), draw(1, 5, 0.0), draw(1, 1, 0.3)],
        [draw(0, 4, 0.0), draw(3, 0, 1.0), draw(1, 6, 1.0), draw(1, 1, 0.75)],
    ]
    return batch_of(rows, length=18, places=4)


def row_of(batch: Batch, row: int) -> Batch:
    """One row of a batch, with the weights that it has in the whole."""
    parts = {field.name: getattr(batch, field.name)[[row]] for field in fields(Batch)}
    return Batch(**parts)


def graph_mode() -> None:
    """Compile what is called from here on, for the CPU."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")


def variant(name: str) -> tuple[str, Mapping[str, float]]:
    """The loss and the parameters of a name in VARIANTS; a test may have added another loss."""
    return VARIANTS.get(name, (name, {}))


class WholeLoss(nn.Cell):
    """Segment means, then the loss Cell, as the model runs them."""

    def __init__(self, name: str, places: int, parameters: dict[str, float]) -> None:
        super().__init__()
        self.means = SegmentMeans(places)
        loss, selecting = variant(name)
        self.loss = build_loss(loss, places, {**selecting, **parameters})

    def construct(
        self,
        log_probs,
        rewards,
        segment_weights,
        token_weights,
        trained,
        segment_ids,
        pass_rates,
        advantages,
        old_log_probs,
        old_log_probs_mean,
    ):
        mean, _ = self.means(log_probs, trained, segment_ids)
        return self.loss(
            log_probs,
            mean,
            rewards,
            segment_weights,
            token_weights,
            trained,
            segment_ids,
            pass_rates,
            advantages,
            old_log_probs,
            old_log_probs_mean,
        )


ORDER = (
    "log_probs",
    "rewards",
    "segment_weights",
    "token_weights",
    "trained",
    "segment_ids",
    "pass_rates",
    "advantages",
    "old_log_probs",
    "old_log_probs_mean",
)
_compiled: dict[Any, Any] = {}


def cell(name: str, batch: Batch, **parameters: float) -> tuple[float, np.ndarray]:
    """The Cell's loss and its gradient by log_probs, in graph mode."""
    graph_mode()
    places = batch.rewards.shape[1]
    key = (name, places, tuple(sorted(parameters.items())))
    # A compiled graph is kept: MindSpore keeps them by object and by shape.
    if key not in _compiled:
        _compiled[key] = ms.value_and_grad(WholeLoss(name, places, parameters), grad_position=0)
    value, gradient = _compiled[key](*(Tensor(getattr(batch, column)) for column in ORDER))
    return float(value.asnumpy()), gradient.asnumpy()


def module_of(name: str) -> Any:
    return importlib.import_module(f"pcl_reasoner.losses.{variant(name)[0]}")


def reference(name: str, batch: Batch, **parameters: Any) -> float:
    """The NumPy definition."""
    loss, selecting = variant(name)
    given = {**LOSSES[loss].parameters, **selecting, **parameters}
    return module_of(name).reference(batch, **given)


def with_log_probs(batch: Batch, log_probs: np.ndarray) -> Batch:
    return replace(batch, log_probs=log_probs)


def finite_differences(name: str, batch: Batch, step: float = 1e-5, **parameters: float) -> Any:
    """The gradient of the NumPy definition by log_probs, in float64.

    What a definition holds fixed (its stopped gradients) stays at the batch's own log-probs.
    """
    takes_weights = "weight_log_probs" in module_of(name).reference.__code__.co_varnames
    held = {"weight_log_probs": batch.log_probs} if takes_weights else {}
    base = batch.log_probs.astype(np.float64)
    gradient = np.zeros_like(base)
    for place in np.ndindex(*base.shape):
        values = []
        for change in (step, -step):
            moved = base.copy()
            moved[place] += change
            values.append(reference(name, with_log_probs(batch, moved), **held, **parameters))
        gradient[place] = (values[0] - values[1]) / (2 * step)
    return gradient


def torch_loss(name: str, batch: Batch, log_probs: Any = None) -> tuple[float, np.ndarray]:
    """The loss written a third time, segment by segment, and its gradient by autograd (float64).

    Args:
        name: In VARIANTS; other parameters are at their defaults.
        batch: What is given.
        log_probs: [B, S] PyTorch values that hang on weights; the gradient is theirs as well.
    """
    if log_probs is None:
        log_probs = torch.tensor(batch.log_probs, dtype=torch.float64)
    if not log_probs.requires_grad:
        log_probs.requires_grad_()
    log_probs.retain_grad()
    total = log_probs.sum() * 0
    for row, number in np.ndindex(*batch.rewards.shape):
        chosen = (batch.segment_ids[row] == number) & (batch.trained[row] > 0)
        if not chosen.any():
            continue
        place = torch.from_numpy(chosen)
        new = log_probs[row][place]
        old = torch.from_numpy(batch.old_log_probs[row].astype(np.float64))[place]
        r, rate, gain, weight = (
            float(column[row, number])
            for column in (
                batch.rewards,
                batch.pass_rates,
                batch.advantages,
                batch.segment_weights,
            )
        )
        token_weight = float(batch.token_weights[row][chosen][0])
        of_segment = TORCH[name](new, old, r, rate, gain)
        weighs = weight if LOSSES[variant(name)[0]].unit == "segment" else token_weight
        total = total + weighs * of_segment
    total.backward()
    gradient: Any = log_probs.grad
    return float(total.detach()), gradient.numpy()


def _torch_clipped(ratio: Any, gain: float, low: float, high: float) -> Any:
    return -torch.minimum(ratio * gain, ratio.clamp(1 - low, 1 + high) * gain)


def _torch_nft(new: Any, old: Any, r: float, rate: float) -> Any:
    q = min(max(rate, 0.02), 0.98)
    ratio = (new - old).exp()
    total = 0
    for share, x, low in ((r, ratio, 0.0), (1 - r, (1 - q * ratio) / (1 - q), 1.0)):
        kept = x + (x.clamp(min=low) - x).detach()
        total = total - share * (1 - q) * kept.log().mean()
    return total


TORCH: dict[str, Any] = {
    "opg": lambda new, old, r, rate, gain: r - (2 * r - 1) * new.mean().exp(),
    "sft": lambda new, old, r, rate, gain: -new.sum(),
    "rft": lambda new, old, r, rate, gain: -r * new.mean(),
    "signed_nll": lambda new, old, r, rate, gain: (0.8 * (1 - r) - r) * new.mean(),
    "asymre": lambda new, old, r, rate, gain: -(r - rate + 0.1) * new.mean(),
    "topr": lambda new, old, r, rate, gain: (
        ((1 - r) * (new.mean() - old.mean()).exp().clamp(0, 1).detach() - r) * new.mean()
    ),
    "gspo": lambda new, old, r, rate, gain: _torch_clipped(
        (new.mean() - old.mean()).exp(), gain, 3e-4, 4e-4
    ),
    "grpo": lambda new, old, r, rate, gain: _torch_clipped(
        (new - old).exp(), gain, 0.2, 0.28
    ).mean(),
    "grpo_on_policy": lambda new, old, r, rate, gain: -gain * (new - new.detach()).exp().mean(),
    "nft": lambda new, old, r, rate, gain: _torch_nft(new, old, r, rate),
    "dft": lambda new, old, r, rate, gain: -(new.exp().detach() * new).sum() * r,
}
"""(log-probs, old ones, reward, pass rate, advantage) of a segment's trained tokens -> loss."""
