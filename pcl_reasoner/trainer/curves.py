"""Writes a run's curves to TensorBoard and SwanLab, from the lines that PclMetrics writes.

callbacks:
  - {type: PclMetrics, path: metrics.jsonl}
  - {type: PclCurves, metrics: metrics.jsonl, tensorboard: curves}

In a recipe's run the launch file requests the curves, so that they do not change any fingerprint:
``placement: {env: {PCL_TENSORBOARD: /data/curves, PCL_SWANLAB: my-project}}``.
"""

import json
import os
from pathlib import Path
from typing import Any

from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.train.callback import Callback

from pcl_reasoner.core.errors import require

TENSORBOARD, SWANLAB = "PCL_TENSORBOARD", "PCL_SWANLAB"
"""Environment variables: TensorBoard's folder, and the name of a SwanLab project."""


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class PclCurves(Callback):
    """Copies every number in metrics.jsonl to TensorBoard and SwanLab, on the rank that writes it.

    Args:
        metrics: The file that PclMetrics writes. PclMetrics always runs before this callback.
        tensorboard: Folder for event files; None: no TensorBoard.
        swanlab: Name of a SwanLab project; None: no SwanLab.
        swanlab_mode: ``cloud``, ``local``, ``offline`` or ``disabled``, as for swanlab.init.
        rank: The rank that writes, as in PclMetrics: other ranks could read the file too early.

    Raises:
        StageError: SwanLab is requested but not installed.
    """

    def __init__(
        self,
        metrics: str,
        tensorboard: str | None = None,
        swanlab: str | None = None,
        swanlab_mode: str | None = None,
        rank: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.metrics = Path(metrics)
        self.tensorboard, self.swanlab, self.mode = tensorboard, swanlab, swanlab_mode
        self.writes = os.environ.get("RANK_ID", "0") == str(rank)
        # Imported now, so that an error is raised before the graph is compiled.
        self.library = require("swanlab", "swanlab") if swanlab and self.writes else None
        self.writer: Any = None
        self.run: Any = None
        self.last: bytes | None = None
        """The line that was written last."""

    def on_train_step_end(self, run_context: Any) -> None:
        """Write the step's numbers; of a round that takes several steps, those of the last one."""
        if not self.writes or not self.metrics.exists():
            return
        line = self.metrics.read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
        if line in (b"", self.last):
            return
        self.last = line
        record = json.loads(line)
        step = record.pop("step")
        numbers = {name: float(value) for name, value in record.items() if value is not None}
        if self.tensorboard:
            for name, value in numbers.items():
                self._events(step).add_scalar(name, value, global_step=step)
        if self.library is not None:
            if self.run is None:
                self.run = self.library.init(project=self.swanlab, mode=self.mode)
            self.run.log(numbers, step=step)

    def on_train_end(self, run_context: Any) -> None:
        """Close the event file and the SwanLab run."""
        if self.writer is not None:
            self.writer.close()
        if self.run is not None:
            self.run.finish()

    def _events(self, step: int) -> Any:
        if self.writer is None:
            from tensorboardX import SummaryWriter

            # A resumed run repeats the steps after its checkpoint: TensorBoard drops the old ones.
            self.writer = SummaryWriter(
                self.tensorboard, purge_step=step, filename_suffix=f".{step}", flush_secs=10
            )
        return self.writer


def add_curves(config: dict[str, Any]) -> None:
    """Add PclCurves if the environment requests it, and the YAML writes metrics but has no curves.

    Args:
        config: A MindFormers configuration, changed in place.
    """
    requested = {"tensorboard": os.environ.get(TENSORBOARD), "swanlab": os.environ.get(SWANLAB)}
    callbacks = config.get("callbacks") or []
    by_type = {one["type"]: one for one in callbacks}
    metrics = by_type.get("PclMetrics", by_type.get("PclRounds"))
    if metrics is not None and "PclCurves" not in by_type and any(requested.values()):
        files = {"metrics": metrics["path"], "rank": metrics.get("rank", 0)}
        callbacks.append({"type": "PclCurves", **files, **requested})
