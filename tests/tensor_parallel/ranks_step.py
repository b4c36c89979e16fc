"""What the programs of ranks share: cases one by one, a layout, the gradients of one step."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_rank
from rank_cases import Case


def compute_all(
    kind: type[Case], compute: Callable[[Any, dict[str, np.ndarray]], dict[str, np.ndarray]]
) -> None:
    """Compute the cases of the folder that the command line names; write this rank's arrays."""
    folder = Path(sys.argv[1])
    given = dict(np.load(folder / "inputs.npz"))
    ms.set_context(mode=ms.GRAPH_MODE)
    for one in json.loads((folder / "cases.json").read_text()):
        case = kind(**one)
        np.savez(folder / f"{case.name}-{get_rank()}.npz", **compute(case, given))


def use_layout(case: Case, dataset_strategy: tuple[tuple[int, ...], ...]) -> None:
    """MindSpore cuts operators over the case's ranks from here on.

    Args:
        case: The layout.
        dataset_strategy: How each column that a rank is given was cut.
    """
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel",
        device_num=case.world,
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
