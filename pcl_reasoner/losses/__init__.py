"""Losses. ``train.loss`` names a module here, which has a NumPy reference and a MindSpore Cell.

This package must import fast, as every recipe's loss settings are checked against LOSSES.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pcl_reasoner.losses.columns import ADVANTAGES, OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN, PASS_RATES

ON_POLICY = "on_policy"
"""Parameter that says whether the policy itself sampled the responses: 1 for yes, 0 for no."""


@dataclass(frozen=True)
class Loss:
    """Properties of a loss that are known without importing its module.

    Args:
        cell: Name of the Cell's class in the module.
        unit: Whether the loss is a mean over the global batch's segments or its trained tokens.
        columns: The columns of OPTIONAL_COLUMNS that the loss requires with its defaults.
        parameters: Name -> default; ``train.loss_parameters`` overrides the defaults.
        pushes_down: Whether incorrect responses become less likely, with no baseline.
    """

    cell: str
    unit: Literal["segment", "token"]
    columns: tuple[str, ...] = ()
    parameters: Mapping[str, float] = field(default_factory=dict)
    pushes_down: bool = False

    def needs(self, parameters: Mapping[str, float]) -> tuple[str, ...]:
        """Return the columns of OPTIONAL_COLUMNS that the loss requires with these parameters.

        Args:
            parameters: The parameters that differ from their defaults.
        """
        if not self._is_on_policy(parameters):
            return self.columns
        old = (OLD_LOG_PROBS, OLD_LOG_PROBS_MEAN)
        return tuple(name for name in self.columns if name not in old)

    def clips(self, parameters: Mapping[str, float]) -> bool:
        """Return whether tokens whose ratio moved too far have no gradient.

        Args:
            parameters: The parameters that differ from their defaults.
        """
        return "eps_low" in self.parameters and not self._is_on_policy(parameters)

    def _is_on_policy(self, parameters: Mapping[str, float]) -> bool:
        return bool({**self.parameters, **parameters}.get(ON_POLICY))


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
        "GrpoLoss",
        "segment",
        (ADVANTAGES, OLD_LOG_PROBS),
        {"eps_low": 0.2, "eps_high": 0.28, ON_POLICY: 0.0},
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

VARIANTS: dict[str, tuple[str, Mapping[str, float]]] = {
    **{name: (name, {}) for name in LOSSES},
    "grpo_on_policy": ("grpo", {ON_POLICY: 1.0}),
}
"""Every formula that is checked -> its loss, and the parameters that select it."""

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
