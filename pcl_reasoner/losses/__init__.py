"""Losses. ``train.loss`` names a module here, which has a NumPy reference and a MindSpore Cell.

This package must import fast, as every recipe's loss settings are checked against LOSSES.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pcl_reasoner.losses.columns import ADVANTAGES, OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN, PASS_RATES


@dataclass(frozen=True)
class Loss:
    """Properties of a loss that are known without importing its module.

    Args:
        cell: Name of the Cell's class in the module.
        unit: Whether the loss is a mean over the global batch's segments or its trained tokens.
        needs: The columns of OPTIONAL_COLUMNS that the loss requires.
        parameters: Name -> default; ``train.loss_parameters`` overrides the defaults.
        pushes_down: Whether incorrect responses become less likely, with no baseline.
    """

    cell: str
    unit: Literal["segment", "token"]
    needs: tuple[str, ...] = ()
    parameters: Mapping[str, float] = field(default_factory=dict)
    pushes_down: bool = False


LOSSES: dict[str, Loss] = {
    "opg": Loss("OpgLoss", "segment", pushes_down=True),
    "sft": Loss("SftLoss", "token"),
    "rft": Loss("RftLoss", "segment"),
    "signed_nll": Loss(
        "SignedNllLoss",
        "segment",
        parameters={"weight_correct": 1.0, "weight_incorrect": 0.8},
        pushes_down=True,
    ),
    "asymre": Loss("AsymreLoss", "segment", (PASS_RATES,), {"delta": -0.1}),
    "topr": Loss("ToprLoss", "segment", (OLD_LOG_PROBS_MEAN,), {"sequence": 0.0}, True),
    "gspo": Loss(
        "GspoLoss", "segment", (ADVANTAGES, OLD_LOG_PROBS_MEAN), {"eps_low": 3e-4, "eps_high": 4e-4}
    ),
    "grpo": Loss(
        "GrpoLoss", "segment", (ADVANTAGES, OLD_LOG_PROBS), {"eps_low": 0.2, "eps_high": 0.28}
    ),
    "nft": Loss(
        "NftLoss",
        "segment",
        (PASS_RATES, OLD_LOG_PROBS),
        {"eps_correct": 0.0, "eps_incorrect": 1.0},
    ),
    "dft": Loss("DftLoss", "token"),
}
"""Name of a module in this package -> its loss. A new loss needs a module, an entry and a test."""

RENAMED_PARAMETERS = {
    "weight_right": "weight_correct",
    "weight_wrong": "weight_incorrect",
    "eps_right": "eps_correct",
    "eps_wrong": "eps_incorrect",
}
"""Old name of a loss parameter -> its present name."""


def build_loss(name: str, max_segments: int, parameters: Mapping[str, float] | None = None) -> Any:
    """Build the Cell of a loss.

    Args:
        name: A key of LOSSES.
        max_segments: G, the number of segments that a row can hold.
        parameters: The parameters that differ from their defaults.
    """
    loss = LOSSES[name]
    module = importlib.import_module(f"{__name__}.{name}")
    return getattr(module, loss.cell)(max_segments, **{**loss.parameters, **(parameters or {})})
