"""What the programs of ranks share: a layout, and the gradients of one step."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_rank


def use_layout(data: int, tensor: int, dataset_strategy: tuple[tuple[int, ...], ...]) -> None:
    """MindSpore cuts operators over data x tensor ranks from here on.

    Args:
        data: Data-parallel ranks.
        tensor: Tensor-parallel ranks.
        dataset_strategy: How each column that a rank is given was cut.
    """
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=data * tensor,
        global_rank=get_rank(),
        dataset_strategy=dataset_strategy,
        gradients_mean=False,
    )


def gradients(loss: nn.Cell, *columns: Tensor) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The loss, and the gradient of every used weight by the last part of its name.

    After one step Momentum's moment is the gradient, unrounded, cut over ranks as the weight is.
    """
    weights: Any = loss.trainable_params()
    optimizer = nn.Momentum(weights, learning_rate=1.0, momentum=0.5)
    value = nn.TrainOneStepCell(loss, optimizer).set_train()(*columns)
    both = zip(weights, optimizer.moments, strict=True)
    return value.asnumpy(), {weight.name.split(".")[-1]: one.asnumpy() for weight, one in both}
