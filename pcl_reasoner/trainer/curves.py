"""A run's curves in TensorBoard and SwanLab, from the lines that PclMetrics writes.

callbacks:
  - {type: PclMetrics, path: metrics.jsonl}
  - {type: PclCurves, metrics: metrics.jsonl, tensorboard: curves}

In a run of a recipe the launch file asks for it, so that the curves are no part of what is hashed:
``placement: {env: {PCL_TENSORBOARD: /data/curves, PCL_SWANLAB: my-project}}``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.train.callback import Callback

from pcl_reasoner.core.errors import require

TENSORBOARD, SWANLAB = "PCL_TENSORBOARD", "PCL_SWANLAB"
"""Environment variables: a folder, and a project's name."""


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class PclCurves(Callback):
    """Writes every number of each step's line; rank 0 alone.

    Args:
        metrics: The file of PclMetrics, which is called before this wherever a YAML has the two.
        tensorboard: Folder of event files; None for none.
        swanlab: A project's name; None for none.
        swanlab_mode: ``cloud``, ``local``, ``offline`` or ``disabled``, as swanlab.init takes it.

    Raises:
        StageError: SwanLab is asked for and not installed.
    """

    def __init__(
        self,
        metrics: str,
        tensorboard: str | None = None,
        swanlab: str | None = None,
        swanlab_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.metrics = Path(metrics)
        self.tensorboard, self.swanlab, self.mode = tensorboard, swanlab, swanlab_mode
        self.writes = os.environ.get("RANK_ID", "0") == "0"
        # Now, and not after the graph has been compiled.
        self.library = require("swanlab", "swanlab") if swanlab and self.writes else None
        self.writer: Any = None
        self.run: Any = None

    def on_train_step_end(self, run_context: Any) -> None:
        """Write the step's numbers."""
        if not self.writes:
            return
        record = json.loads(self.metrics.read_bytes().rstrip(b"\n").rpartition(b"\n")[2])
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

            # A resumed run makes the steps after its checkpoint again: TensorBoard drops them.
            self.writer = SummaryWriter(
                self.tensorboard, purge_step=step, filename_suffix=f".{step}", flush_secs=10
            )
        return self.writer


def add_curves(config: dict[str, Any]) -> None:
    """Add the callback where the environment asks for it and the YAML has none.

    Args:
        config: A MindFormers configuration, changed in place.
    """
    asked = {"tensorboard": os.environ.get(TENSORBOARD), "swanlab": os.environ.get(SWANLAB)}
    callbacks = config.get("callbacks") or []
    metrics = next((it["path"] for it in callbacks if it["type"] == "PclMetrics"), None)
    if not any(asked.values()) or metrics is None:
        return
    if not any(it["type"] == "PclCurves" for it in callbacks):
        callbacks.append({"type": "PclCurves", "metrics": metrics, **asked})
