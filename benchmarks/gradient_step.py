"""One micro-batch's loss and gradients, and a whole step, of the model that a YAML renders.

What MindSpore compiles is written without annotations.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy.typing as npt
from mindspore import nn, ops


class Gradients(nn.Cell):
    """A row's columns -> the loss and the gradients of all weights, as a micro-batch makes them."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.weights = ms.ParameterTuple(network.trainable_params())
        self.gradient = ops.value_and_grad(network, grad_position=None, weights=self.weights)

    def construct(self, *columns):
        """The loader's columns -> (loss, gradients)."""
        return self.gradient(*columns)


def network_of(config: Any, checkpoint: Path) -> Any:
    """The model of a MindFormerConfig, called with the loader's columns in their order."""
    from mindformers.wrapper.wrapper import DataOrderWrapperCell
    from mindformers_side import build_model

    model = build_model(config, checkpoint).set_train(True)
    return DataOrderWrapperCell(list(config.train_dataset.construct_args_key), model)


def step_of(config: Any, network: Any) -> Any:
    """The training step as MindFormers' Trainer wraps it, at the YAML's highest learning rate."""
    from mindformers.core.optim import AdamW
    from mindformers.trainer.optimizer_grouped_parameters import get_optimizer_grouped_parameters

    from pcl_reasoner.trainer.step import PclTrainOneStepCell

    settings = config.optimizer
    groups = get_optimizer_grouped_parameters(network.network, settings.weight_decay)
    optimizer = AdamW(groups, settings.learning_rate, tuple(settings.betas), settings.eps)
    return PclTrainOneStepCell(
        network, optimizer, use_clip_grad=True, max_grad_norm=1.0
    ).set_train()


def tensors(columns: Mapping[str, npt.NDArray[Any]], keys: list[str]) -> list[Any]:
    """A micro-batch's columns in the model's order."""
    return [ms.Tensor(columns[key]) for key in keys]
