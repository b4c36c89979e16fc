"""The training step, and the metrics that are written for each step."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindformers.wrapper.wrapper import MFTrainOneStepCell
from mindspore import Tensor, ops
from mindspore.communication import get_group_size
from mindspore.train.callback import Callback

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.train.stopping import STOPPED, Stop, read_steps, reason_to_stop
from pcl_reasoner.trainer import mindformers_1_8 as version
from pcl_reasoner.trainer.figures import COLUMNS, VERDICTS, StepFigures

_total = ops.MultitypeFuncGraph("pcl_total")


@_total.register("Tensor")
def _total_tensor(gradient):
    return gradient.astype(ms.float32).sum()


@MindFormerRegister.register(MindFormerModuleType.WRAPPER)
class PclTrainOneStepCell(MFTrainOneStepCell):
    """MindFormers' training step; on a CPU, overflow means that some gradient is not finite.

    MindFormers' own check reads the NPU's float status, which has no CPU kernel. On other devices
    this class behaves like MindFormers' class.
    """

    def __init__(self, network: Any, optimizer: Any, **kwargs: Any) -> None:
        super().__init__(network, optimizer, **kwargs)
        self.check_gradients = version.on_cpu()

    def get_overflow_status(self, status, compute_output):
        """True when the step must be skipped."""
        if self.check_gradients:
            # A sum is finite only if every term is. This takes one small operator per gradient.
            total = ops.addn(self.hyper_map(_total, compute_output))
            return ops.logical_not(ops.isfinite(total))
        return super().get_overflow_status(status, compute_output)


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class PclMetrics(Callback):
    """Writes a JSON line per step: loss, learning rate, gradient norm, statistics by verdict.

    {"step": 1, "loss": 0.48, "learning_rate": 1e-4, "grad_norm": 0.9, "overflow": 0, "tokens": 812,
     "correct_count": 10, "correct_m": -0.2, "correct_p": 0.8, "correct_weight": 0.5,
     "correct_length": 51.0, "correct_entropy": 0.3, "incorrect_count": 6, …,
     "no_advantage": null, "clipped": null}

    One rank writes, and its values cover the complete global batch. A step's line is on disk before
    the step's checkpoint is started, and a resumed run removes the lines of steps after its
    checkpoint. So no step is missing and none is recorded twice.

    Args:
        path: The file; ``stopped.txt`` in the same folder says why a run was stopped.
        rank: The rank that writes: 0; in a pipeline, the first rank of the stage with the loss.
        loss_divisor: The loss is divided by this: with several micro-batches MindFormers returns
            the sum of their losses.
        stop_if: Rules that end the run, as fields of ``Stop``. A loss that is not finite always
            ends it.
    """

    def __init__(
        self,
        path: str,
        stop_if: dict[str, Any] | None = None,
        rank: int = 0,
        loss_divisor: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self.stop_if = Stop(**(stop_if or {}))
        self.writes = os.environ.get("RANK_ID", "0") == str(rank)
        self.loss_divisor = loss_divisor
        self.figures: Any = None
        self.defined: dict[str, bool] = {}
        self.steps_before = 0
        self.records: list[dict[str, Any]] = []

    def on_train_begin(self, run_context: Any) -> None:
        """Find the parameter with a step's statistics; remove lines of steps to be repeated."""
        args = run_context.original_args()
        parameters = args.train_network.get_parameters()
        self.figures = next((p for p in parameters if p.name.endswith("step_figures")), None)
        self.defined = defined_figures(args.train_network)
        self.steps_before = self.steps_done(run_context)
        self.records = truncate_lines(self.path, self.steps_before, self.writes)

    def steps_done(self, run_context: Any) -> int:
        """Return the number of steps that a resumed run has made before."""
        # MindSpore counts a resumed run's steps from 0; the data set says how many it skips.
        return int(run_context.original_args().train_dataset.get_init_step())

    def on_train_step_begin(self, run_context: Any) -> None:
        """Set the sums to 0: the model adds those of every micro-batch."""
        if self.figures is not None:
            self.figures.set_data(Tensor(np.zeros(self.figures.shape, np.float32)))

    def on_train_step_end(self, run_context: Any) -> None:
        """Write the step's line; end the run if a rule says so."""
        args = run_context.original_args()
        step = self.steps_before + int(args.cur_step_num)
        self.write(self.record(run_context, step, number_of(args.net_outputs[0])))
        self.end_if_asked()

    def record(self, run_context: Any, step: int, loss: float) -> dict[str, Any]:
        """Return a step's line. Every rank must call it.

        Args:
            run_context: MindSpore's, after the step.
            step: The step's number, from 1.
            loss: The sum of the losses of the step's micro-batches, on this rank.
        """
        _, overflow, scale, learning_rate, norm = run_context.original_args().net_outputs[:5]
        ranks = data_parallel_ranks()
        record: dict[str, Any] = {
            "step": step,
            "loss": float(sum_over_ranks(np.array([loss]))[0] / ranks / self.loss_divisor),
            "learning_rate": number_of(learning_rate),
            "grad_norm": _finite(norm),
            "loss_scale": number_of(scale),
            "overflow": int(bool(number_of(overflow))),
        }
        if self.figures is not None:
            record |= by_verdict(sum_over_ranks(self.figures.asnumpy()), ranks, self.defined)
        return record

    def write(self, record: dict[str, Any]) -> None:
        """Append a line to the file, and wait until it is on the disk."""
        self.records.append(record)
        if self.writes:
            with self.path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(record) + "\n")
                handle.flush()
                os.fsync(handle.fileno())

    def end_if_asked(self) -> None:
        """End the run if a rule says so.

        Raises:
            RuntimeError: A rule ends the run. Every rank raises it, as all ranks have equal values.
        """
        reason = reason_to_stop(self.records, self.stop_if)
        if reason is not None:
            if self.writes:
                self.path.with_name(STOPPED).write_text(reason + "\n", encoding="utf-8")
            raise RuntimeError(reason)


def defined_figures(network: Any) -> dict[str, bool]:
    """Return whether each optional statistic is computed: its name -> True or False."""
    cells = [cell for _, cell in network.cells_and_names()]
    defined = {"entropy": any(getattr(cell, "entropy", False) is True for cell in cells)}
    for cell in cells:
        if isinstance(cell, StepFigures):
            defined |= cell.defined
    return defined


def truncate_lines(path: Path, last: int, writes: bool) -> list[dict[str, Any]]:
    """Read a file's lines up to a step, and remove later and incomplete lines from the file.

    Args:
        path: A file with one line per step, each with ``step``.
        last: The last step that is kept.
        writes: False for a process that only reads the file.
    """
    kept = [record for record in read_steps(path) if record["step"] <= last]
    if writes:
        write_atomically(path, "".join(json.dumps(record) + "\n" for record in kept))
    return kept


def data_parallel_ranks() -> int:
    """Number of ranks in data-parallel mode; else 1, as MindSpore then sums over ranks itself."""
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


def number_of(value: Any) -> float:
    """Return the first number of a tensor, array or number."""
    array = value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)
    return float(np.ravel(array)[0])


def by_verdict(figures: np.ndarray, ranks: int, defined: Mapping[str, bool]) -> dict[str, Any]:
    """Turn a step's sums into counts and means for correct and for incorrect responses.

    Args:
        figures: [2, columns] float32, as StepFigures makes them, summed over ranks.
        ranks: Number of ranks that average gradients; segment weights are too large by this factor.
        defined: The result of defined_figures.

    Returns:
        Entries of a step's line. A value is None if there is no such response, or if it was not
        computed.
    """
    rows = [dict(zip(COLUMNS, map(float, row), strict=True)) for row in figures]
    count, tokens, no_advantage, clipped = (
        sum(row[name] for row in rows) for name in ("count", "tokens", "no_advantage", "clipped")
    )
    record: dict[str, Any] = {
        "tokens": int(tokens),
        "no_advantage": no_advantage / count if defined.get("no_advantage") and count else None,
        "clipped": clipped / tokens if defined.get("clipped") and tokens else None,
    }
    for verdict, sums in zip(VERDICTS, rows, strict=True):
        record[f"{verdict}_count"] = int(sums["count"])
        record[f"{verdict}_weight"] = sums["weight"] / ranks if defined.get("weight") else None
        for name, column in (("m", "m"), ("p", "p"), ("length", "tokens")):
            record[f"{verdict}_{name}"] = sums[column] / sums["count"] if sums["count"] else None
        has_entropy = defined.get("entropy") and sums["tokens"]
        record[f"{verdict}_entropy"] = sums["entropy"] / sums["tokens"] if has_entropy else None
    return record


def _finite(value: Any) -> float | None:
    """A number, or None if it is missing or not finite (the step overflowed): JSON has no NaN."""
    number = float("nan") if value is None else number_of(value)
    return number if np.isfinite(number) else None
