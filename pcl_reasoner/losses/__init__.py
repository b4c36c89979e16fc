"""Losses, one module each: a NumPy reference and a MindSpore Cell; ``train.loss`` is its name.

This package is cheap to import: a recipe's settings of a loss are checked against LOSSES alone.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pcl_reasoner.losses.columns import ADVANTAGES, OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN, PASS_RATES


@dataclass(frozen=True)
class Loss:
    """The properties of a loss, which are available without importing its module.

    Args:
        cell: Name of its Cell in the module.
        unit: What has equal weight in the mean: each segment, or each trained token.
        needs: The columns of OPTIONAL_COLUMNS that the loss requires.
        parameters: Name -> default; ``train.loss_parameters`` overrides the defaults.
    """

    cell: str
    unit: Literal["segment", "token"]
    needs: frozenset[str] = frozenset()
    parameters: Mapping[str, float] = field(default_factory=dict)


LOSSES: dict[str, Loss] = {
    "opg": Loss("OpgLoss", "segment"),
    "sft": Loss("SftLoss", "token"),
    "rft": Loss("RftLoss", "segment"),
    "signed_nll": Loss(
        "SignedNllLoss", "segment", parameters={"weight_correct": 1.0, "weight_incorrect": 0.8}
    ),
    "asymre": Loss("AsymreLoss", "segment", frozenset({PASS_RATES}), {"delta": -0.1}),
    "topr": Loss("ToprLoss", "segment", frozenset({OLD_LOG_PROBS_MEAN}), {"sequence": 0.0}),
    "gspo": Loss(
        "GspoLoss",
        "segment",
        frozenset({ADVANTAGES, OLD_LOG_PROBS_MEAN}),
        {"eps_low": 3e-4, "eps_high": 4e-4},
    ),
    "grpo": Loss(
        "GrpoLoss",
        "segment",
        frozenset({ADVANTAGES, OLD_LOG_PROBS}),
        {"eps_low": 0.2, "eps_high": 0.28},
    ),
    "nft": Loss(
        "NftLoss",
        "segment",
        frozenset({PASS_RATES, OLD_LOG_PROBS}),
        {"eps_correct": 0.0, "eps_incorrect": 1.0},
    ),
    "dft": Loss("DftLoss", "token"),
}
"""Module in this package -> its loss. To add a loss: one file, one line here, one test."""


RENAMED_PARAMETERS = {
    "weight_right": "weight_correct",
    "weight_wrong": "weight_incorrect",
    "eps_right": "eps_correct",
    "eps_wrong": "eps_incorrect",
}
"""A parameter's old name -> its new name."""


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
