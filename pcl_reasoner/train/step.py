"""The training step and what is written down of each one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindformers.wrapper.wrapper import MFTrainOneStepCell
from mindspore import Tensor, ops
from mindspore.communication import get_group_size
from mindspore.train.callback import Callback

from pcl_reasoner.train import mindformers_1_8 as version
from pcl_reasoner.train.model import FIGURES

_total = ops.MultitypeFuncGraph("pcl_total")


@_total.register("Tensor")
def _total_tensor(gradient):
    return gradient.astype(ms.float32).sum()


@MindFormerRegister.register(MindFormerModuleType.WRAPPER)
class PclTrainOneStepCell(MFTrainOneStepCell):
    """MindFormers' step; on a CPU the overflow check looks for gradients that are not finite.

    The stock check reads the NPU's float status, which has no CPU kernel. Elsewhere this class is
    the stock one.
    """

    def __init__(self, network: Any, optimizer: Any, **kwargs: Any) -> None:
        super().__init__(network, optimizer, **kwargs)
        self.check_gradients = version.on_cpu()

    def get_overflow_status(self, status, compute_output):
        """True when the step must be skipped."""
        if self.check_gradients:
            # A sum is finite only if every term is; one small operator a gradient.
            total = ops.addn(self.hyper_map(_total, compute_output))
            return ops.logical_not(ops.isfinite(total))
        return super().get_overflow_status(status, compute_output)


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class PclMetrics(Callback):
    """One JSON line a step: loss, learning rate, gradient norm, right and wrong apart.

    {"step": 1, "loss": 0.48, "learning_rate": 1e-4, "grad_norm": 0.9, "overflow": 0,
     "right_count": 10, "right_m": -0.2, "right_p": 0.8, "wrong_count": 6, …, "tokens": 812}

    Rank 0 writes, and its figures are of the whole global batch. A resumed run cuts the lines after
    the checkpoint that it starts from, so that no step stands twice.
    """

    def __init__(self, path: str, stop_if_not_finite: bool = True, **kwargs: Any) -> None:
        super().__init__()
        self.path = Path(path)
        self.stop_if_not_finite = stop_if_not_finite
        self.writes = os.environ.get("RANK_ID", "0") == "0"
        self.figures: Any = None
        self.steps_before = 0

    def on_train_begin(self, run_context: Any) -> None:
        """Find the model's figures, and drop the steps that are about to be made again."""
        args = run_context.original_args()
        parameters = args.train_network.get_parameters()
        self.figures = next((p for p in parameters if p.name.endswith("step_figures")), None)
        # MindSpore counts a resumed run's steps from 0; what it skips says how many were made.
        self.steps_before = int(args.train_dataset.get_init_step())
        if not self.writes:
            return
        kept = []
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.endswith("\n") and json.loads(line)["step"] <= self.steps_before:
                    kept.append(line)
        self.path.write_text("".join(kept), encoding="utf-8")

    def on_train_step_end(self, run_context: Any) -> None:
        """Write the step's line."""
        args = run_context.original_args()
        loss, overflow, scale, learning_rate, norm = args.net_outputs[:5]
        record: dict[str, Any] = {
            "step": self.steps_before + int(args.cur_step_num),
            "loss": float(sum_over_ranks(np.array([_number(loss)]))[0] / data_parallel_ranks()),
            "learning_rate": _number(learning_rate),
            "grad_norm": None if norm is None else _number(norm),
            "loss_scale": _number(scale),
            "overflow": int(bool(_number(overflow))),
        }
        if self.figures is not None:
            record |= means_by_verdict(sum_over_ranks(self.figures.asnumpy()))
        if self.writes:
            with self.path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(record) + "\n")
        if self.stop_if_not_finite and not np.isfinite(record["loss"]):
            raise RuntimeError(
                f"step {record['step']}: the loss is {record['loss']}. Lower the learning rate, "
                "or look at the step's rows in data_order.json."
            )


def data_parallel_ranks() -> int:
    """Ranks that each see rows of their own; 1 in MindSpore's other modes, which add up alone."""
    if ms.get_auto_parallel_context("parallel_mode") != ms.ParallelMode.DATA_PARALLEL:
        return 1
    return int(get_group_size())


def sum_over_ranks(values: np.ndarray) -> np.ndarray:
    """Add numbers over data-parallel ranks, in float32. Every rank must call it.

    Args:
        values: [n] float.
    """
    if data_parallel_ranks() == 1:
        return values
    return ops.AllReduce()(Tensor(values, ms.float32)).asnumpy()


def _number(value: Any) -> float:
    array = value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)
    return float(np.ravel(array)[0])


def means_by_verdict(figures: np.ndarray) -> dict[str, float | int | None]:
    """Turn a step's sums into counts and means.

    Args:
        figures: [7] float32, in the order of ``FIGURES``.

    Returns:
        Means are None where there is no such response.
    """
    sums = dict(zip(FIGURES, (float(value) for value in figures), strict=True))
    record: dict[str, float | int | None] = {"tokens": int(sums["tokens"])}
    for kind in ("right", "wrong"):
        count = int(sums[f"{kind}_count"])
        record[f"{kind}_count"] = count
        for figure in ("m", "p"):
            value = sums[f"{kind}_{figure}"]
            record[f"{kind}_{figure}"] = value / count if count else None
    return record
