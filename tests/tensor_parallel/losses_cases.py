"""Losses in a layout, what they are given, and their float64 definitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from ranks import EXACT_KERNELS
from run_ranks import run_ranks

from pcl_reasoner.losses.segments import Batch, segment_means

PROGRAM = Path(__file__).parent / "losses_rank.py"
HIDDEN, VOCABULARY, LENGTH, PLACES = 16, 32, 18, 4
COLUMNS = (
    "input_ids",
    "labels",
    "position_ids",
    "segment_ids",
    "rewards",
    "segment_weights",
    "token_weights",
    "pass_rates",
    "advantages",
    "frozen_log_probs",
    "frozen_mean",
)


@dataclass(frozen=True)
class LossCase:
    """A loss and a layout.

    Args:
        loss: In LOSSES.
        data: Data-parallel ranks.
        tensor: Tensor-parallel ranks.
        chunk_tokens: Tokens of a rank whose logits exist at a time.
        reduced: With AllReduces in place of gathered scores, as it was at first.
    """

    loss: str
    data: int = 2
    tensor: int = 2
    chunk_tokens: int = 14
    reduced: bool = False

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.data * self.tensor

    @property
    def name(self) -> str:
        """A file's name."""
        return "-".join(str(value) for value in asdict(self).values())


def drawn() -> tuple[dict[str, np.ndarray], Batch]:
    """Hidden states and weights, and a batch of four rows whose frozen policy is near by."""
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
        [draw(2, 7, 0.0), draw(1, 6, 1.0)],
    ]
    batch = batch_of(rows, LENGTH, PLACES)
    shape = batch.log_probs.shape
    hidden = 0.25 * rng.standard_normal((*shape, HIDDEN)).astype(np.float32)
    weight = rng.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)
    labels = np.where(batch.trained > 0, rng.integers(0, VOCABULARY, shape), -100).astype(np.int32)
    frozen = log_probs_of(hidden, weight, labels)[0] + rng.normal(0, 0.2, shape)
    frozen = np.where(batch.trained > 0, frozen, 0.0).astype(np.float32)
    mean, _ = segment_means(frozen, batch.trained, batch.segment_ids, PLACES)
    columns = {field.name: getattr(batch, field.name) for field in fields(Batch)}
    columns |= {"frozen_log_probs": frozen, "frozen_mean": mean.astype(np.float32)}
    zeros = np.zeros(shape, np.int32)
    given = {"hidden": hidden, "weight": weight, "labels": labels}
    given |= {"input_ids": zeros, "position_ids": zeros}
    return given | columns, Batch(**columns)


def log_probs_of(
    hidden: np.ndarray, weight: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """log π of each label (−100: 0) and the entropies, [B, S], in float64."""
    logits = hidden.astype(np.float64) @ weight.astype(np.float64).T
    log_shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
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
    from pcl_reasoner.losses import ADVANTAGES, LOSSES, PASS_RATES

    log_probs, entropies = log_probs_of(given["hidden"], given["weight"], given["labels"])
    figures = np.zeros((2, 8))
    for row, number in np.ndindex(*batch.rewards.shape):
        chosen = (batch.segment_ids[row] == number) & (batch.trained[row] > 0)
        if not chosen.any():
            continue
        mean = log_probs[row][chosen].mean()
        flat = 0.0
        if ADVANTAGES in LOSSES[loss].needs:
            flat = float(batch.advantages[row, number] == 0)
        elif PASS_RATES in LOSSES[loss].needs:
            flat = float(batch.pass_rates[row, number] in (0, 1))
        sums = (1, chosen.sum(), mean, np.exp(mean), 0, entropies[row][chosen].sum(), flat, 0)
        figures[int(batch.rewards[row, number] < 0.5)] += sums
    return figures


def run(cases: Sequence[LossCase], folder: Path, exact_kernels: bool = True) -> None:
    """Run cases of one world size; every rank's arrays are in the folder after it."""
    (world,) = {case.world for case in cases}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in cases]))
    np.savez(folder / "inputs.npz", **drawn()[0])
    run_ranks(world, PROGRAM, [str(folder)], {EXACT_KERNELS: str(int(exact_kernels))})


def worst_errors(case: LossCase, folder: Path) -> dict[str, float]:
    """Largest difference from float64 over all ranks, relative to the largest expected number."""
    worst: dict[str, float] = {}
    for rank in range(case.world):
        found = np.load(folder / f"{case.name}-{rank}.npz")
        for name, whole in expected(case.loss).items():
            own = whole
            if name == "weight":
                own = np.split(whole, case.tensor)[rank % case.tensor]
            if name == "hidden":
                own = np.split(whole, case.data)[rank // case.tensor]
            if found[name].shape != own.shape:
                raise ValueError(
                    f"rank {rank} has {name} of {found[name].shape}, expected {own.shape}"
                )
            error = float(np.abs(found[name] - own).max() / np.abs(whole).max())
            worst[name] = max(worst.get(name, 0.0), error)
    return worst
