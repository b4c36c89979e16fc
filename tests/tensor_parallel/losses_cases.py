"""Losses in a layout, what they are given, and their float64 definitions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from log_probs_cases import log_shares_of
from rank_cases import Case, part_of_rank, relative_error, results

from pcl_reasoner.losses.columns import column_names
from pcl_reasoner.losses.segments import Batch, segment_means

PROGRAM = Path(__file__).parent / "losses_rank.py"
HIDDEN, VOCABULARY, LENGTH, PLACES = 16, 32, 18, 4
COLUMNS = column_names(compressed_mask=True)[:-1]
"""All but the mask: it goes to the layers, which are not there."""


@dataclass(frozen=True)
class LossCase(Case):
    """A layout and a loss.

    Args:
        loss: In VARIANTS.
        chunk_tokens: Tokens of a rank whose logits exist at a time.
    """

    loss: str = "opg"
    chunk_tokens: int = 14


def drawn() -> tuple[dict[str, np.ndarray], Batch]:
    """Hidden states and weights, and a batch of four rows whose old policy is near by."""
    from losses_helpers import batch_of, segment

    rng = np.random.default_rng(0)

    def draw(prompt: int, response: int, reward: float) -> Any:
        rate = float(rng.uniform(0.1, 0.9))
        values = [None] * prompt + [0.0] * response
        return segment(values, reward, pass_rate=rate, advantage=(reward - rate) / 0.4)

    rows = [
        [draw(2, 3, 1.0), draw(1, 5, 0.0), draw(1, 1, 0.3)],
        [draw(0, 4, 0.0), draw(3, 0, 1.0), draw(1, 6, 1.0), draw(1, 1, 0.75)],
        [draw(1, 12, 1.0)],
        # The first is of a group whose rewards are all equal.
        [segment([None] * 2 + [0.0] * 7, 0.0, pass_rate=0.0, advantage=0.0), draw(1, 6, 1.0)],
    ]
    batch = batch_of(rows, LENGTH, PLACES)
    shape = batch.log_probs.shape
    hidden = 0.25 * rng.standard_normal((*shape, HIDDEN)).astype(np.float32)
    weight = rng.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)
    labels = np.where(batch.trained > 0, rng.integers(0, VOCABULARY, shape), -100).astype(np.int32)
    old = log_probs_of(hidden, weight, labels)[0] + rng.normal(0, 0.2, shape)
    old = np.where(batch.trained > 0, old, 0.0).astype(np.float32)
    mean, _ = segment_means(old, batch.trained, batch.segment_ids, PLACES)
    columns = {field.name: getattr(batch, field.name) for field in fields(Batch)}
    columns |= {"old_log_probs": old, "old_log_probs_mean": mean.astype(np.float32)}
    zeros = np.zeros(shape, np.int32)
    given = {"hidden": hidden, "weight": weight, "labels": labels}
    given |= {"input_ids": zeros, "position_ids": zeros}
    return given | columns, Batch(**columns)


def log_probs_of(
    hidden: np.ndarray, weight: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """log π of each label (−100: 0) and the entropies, [B, S], in float64."""
    log_shares = log_shares_of(hidden, weight)
    one_hot = labels[..., None] == np.arange(len(weight))
    return (log_shares * one_hot).sum(-1), -(np.exp(log_shares) * log_shares).sum(-1)


def expected(loss: str) -> dict[str, np.ndarray]:
    """The loss, its gradients by weights and hidden states, and the figures, in float64."""
    import torch
    from losses_helpers import torch_loss

    given, batch = drawn()
    hidden, weight = (
        torch.tensor(given[name], dtype=torch.float64, requires_grad=True)
        for name in ("hidden", "weight")
    )
    labels = torch.tensor(given["labels"], dtype=torch.int64)
    log_shares = torch.log_softmax(hidden @ weight.T, -1)
    log_probs = log_shares.gather(-1, labels.clamp(min=0)[..., None])[..., 0] * (labels >= 0)
    value, _ = torch_loss(loss, batch, log_probs)
    return {
        "loss": np.array(value),
        "weight": weight.grad.numpy(),
        "hidden": hidden.grad.numpy(),
        "figures": expected_figures(loss, given, batch),
    }


def expected_figures(loss: str, given: dict[str, np.ndarray], batch: Batch) -> np.ndarray:
    """StepFigures' sums, segment by segment; gradients are not made where operators are cut."""
    from pcl_reasoner.losses import LOSSES, VARIANTS
    from pcl_reasoner.losses.columns import ADVANTAGES, PASS_RATES

    name, parameters = VARIANTS[loss]
    needs = LOSSES[name].needs(parameters)
    log_probs, entropies = log_probs_of(given["hidden"], given["weight"], given["labels"])
    figures = np.zeros((2, 8))
    for row, number in np.ndindex(*batch.rewards.shape):
        chosen = (batch.segment_ids[row] == number) & (batch.trained[row] > 0)
        if not chosen.any():
            continue
        mean = log_probs[row][chosen].mean()
        flat = 0.0
        if ADVANTAGES in needs:
            flat = float(batch.advantages[row, number] == 0)
        elif PASS_RATES in needs:
            flat = float(batch.pass_rates[row, number] in (0, 1))
        sums = (1, chosen.sum(), mean, np.exp(mean), 0, entropies[row][chosen].sum(), flat, 0)
        figures[int(batch.rewards[row, number] < 0.5)] += sums
    return figures


def worst_errors(case: LossCase, folder: Path) -> dict[str, float]:
    """The largest relative error of each array over all ranks; of figures, of each column.

    Raises:
        ValueError: A rank has another part of an array than its own.
    """
    want = expected(case.loss)
    worst = dict.fromkeys(want, 0.0)
    for rank, found in results(case, folder):
        for name, whole in want.items():
            by = {"weight": "tensor", "hidden": "data"}.get(name)
            own = part_of_rank(case, rank, whole, by) if by else whole
            error = relative_error(found[name], own, whole)
            if name == "figures":
                error = max(error, figures_error(found[name], whole))
            worst[name] = max(worst[name], error)
    return worst


def figures_error(found: np.ndarray, whole: np.ndarray) -> float:
    """The largest relative error of a column; a column of zeros must be one."""
    largest = np.abs(whole).max(0)
    differences = np.abs(found - whole).max(0)
    return float(np.where(largest > 0, differences / np.maximum(largest, 1e-30), differences).max())
