"""Runs every loss and its gradient on the device, and compares both with NumPy definitions."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.hardware_check.devices import use
from pcl_reasoner.hardware_check.outcome import Check, Outcome, Setting, compare
from pcl_reasoner.losses import LOSSES, VARIANTS
from pcl_reasoner.losses.columns import LOSS_COLUMNS
from pcl_reasoner.losses.segments import Batch, segment_means

PLACES, LENGTH = 4, 24
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4
"""Largest allowed errors. Devices compute in float32, with a less exact exp than NumPy's."""

ORDER = ("log_probs", *LOSS_COLUMNS)


def loss_cells(setting: Setting, folder: Path) -> Outcome:
    """Check every formula in VARIANTS."""
    use(setting.device)
    batch = drawn_batch()
    outcome = Outcome()
    for name in sorted(VARIANTS):
        outcome.checks += checks_of(name, batch)
    return outcome


def drawn_batch() -> Batch:
    """Draw two rows of three segments and padding; one reward is 0.25, one segment is untrained."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.array([0, 1, 2, 3] * 2, np.int32), [7, 6, 5, 6, 9, 3, 8, 4])
    segment_ids = ids.reshape(2, LENGTH)
    log_probs = -2 * rng.random((2, LENGTH), np.float32) - np.float32(0.05)
    old = log_probs + rng.random((2, LENGTH), np.float32) - np.float32(0.5)
    trained = (segment_ids < 3) & (rng.random((2, LENGTH)) < 0.7)
    trained &= ~((segment_ids == 1) & (np.arange(2)[:, None] == 1))
    weights = trained.astype(np.float32)
    means, _ = segment_means(old, weights, segment_ids, PLACES)
    has_token = np.array([[1, 1, 1, 0], [1, 0, 1, 0]], np.float32)
    rewards = np.array([[1, 0, 0.25, 0], [0, 1, 1, 0]], np.float32)
    return Batch(
        log_probs=log_probs,
        trained=weights,
        segment_ids=segment_ids,
        rewards=rewards,
        segment_weights=has_token / has_token.sum(),
        token_weights=weights / weights.sum(),
        pass_rates=np.full_like(rewards, 0.4),
        advantages=(rewards - np.float32(0.4)) / np.float32(0.5),
        old_log_probs=old,
        old_log_probs_mean=means.astype(np.float32),
    )


def checks_of(name: str, batch: Batch) -> list[Check]:
    """Check the formula ``name`` and its gradient with respect to the log-probabilities."""
    import mindspore as ms

    from pcl_reasoner.hardware_check.cells import WholeLoss

    run = ms.value_and_grad(WholeLoss(name, PLACES), 0)
    loss, gradient = run(*(ms.Tensor(getattr(batch, column)) for column in ORDER))
    expected = finite_differences(name, batch)
    return [
        compare(f"{name}, loss", float(loss.asnumpy()), reference(name, batch), LOSS_TOLERANCE),
        compare(f"{name}, gradient", gradient.asnumpy(), expected, GRADIENT_TOLERANCE),
    ]


def _definition(name: str) -> Any:
    return importlib.import_module(f"pcl_reasoner.losses.{VARIANTS[name][0]}").reference


def reference(name: str, batch: Batch, **held: Any) -> float:
    """Return the loss by its NumPy definition; ``held`` has the arguments to keep constant."""
    loss, parameters = VARIANTS[name]
    return float(_definition(name)(batch, **{**LOSSES[loss].parameters, **parameters}, **held))


def finite_differences(name: str, batch: Batch) -> NDArray[np.float64]:
    """Return the gradient of a loss's NumPy definition with respect to log-probabilities, [B, S].

    Terms with a stopped gradient keep the batch's own log-probabilities.
    """
    takes_weights = "weight_log_probs" in _definition(name).__code__.co_varnames
    held = {"weight_log_probs": batch.log_probs} if takes_weights else {}
    base, step = batch.log_probs.astype(np.float64), 1e-5
    gradient = np.zeros_like(base)
    for index in np.ndindex(*base.shape):
        values = []
        for change in (step, -step):
            moved = base.copy()
            moved[index] += change
            values.append(reference(name, replace(batch, log_probs=moved), **held))
        gradient[index] = (values[0] - values[1]) / (2 * step)
    return gradient
