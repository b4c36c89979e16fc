"""One NumPy reference and one MindSpore Cell a loss; ``train.loss`` names the module.

Cheap to import: what a recipe says of a loss is checked against LOSSES alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pcl_reasoner.losses.columns import ADVANTAGES, OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN, PASS_RATES


@dataclass(frozen=True)
class Loss:
    """What is known of a loss without importing it.

    Args:
        cell: Its Cell's name in the module.
        unit: What weighs alike in the mean: each segment, or each trained token.
        needs: Those of OPTIONAL_COLUMNS without which it has no meaning.
        parameters: Name -> default; ``train.loss_parameters`` changes them.
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
"""Module in this package -> what it holds. Adding a loss: one file, one line here, one test."""


RENAMED_PARAMETERS = {
    "weight_right": "weight_correct",
    "weight_wrong": "weight_incorrect",
    "eps_right": "eps_correct",
    "eps_wrong": "eps_incorrect",
}
"""A parameter's old name -> its name."""


def build_loss(name: str, places: int, parameters: Mapping[str, float] | None = None) -> Any:
    """A loss's Cell.

    Args:
        name: In LOSSES.
        places: G, segments that a row can hold.
        parameters: Those that are not at their defaults.
    """
    known = LOSSES[name]
    module = importlib.import_module(f"{__name__}.{name}")
    return getattr(module, known.cell)(places, **{**known.parameters, **(parameters or {})})
