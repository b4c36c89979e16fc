"""Seals every checkpoint in the step that wrote it (weights/seals.py).

callbacks:
  - {type: PclSeals, folder: work/checkpoint}

Training waits for it: about a second per GB that a rank has written.
"""

import os
from pathlib import Path
from typing import Any

from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.train.callback import Callback

from pcl_reasoner.weights.seals import seal_files


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class PclSeals(Callback):
    """Seals the new checkpoints of a rank; MindFormers runs it after its own CheckpointMonitor.

    Args:
        folder: MindFormers' folder ``checkpoint``.
    """

    def __init__(self, folder: str, **kwargs: Any) -> None:
        super().__init__()
        self.folder = Path(folder) / f"rank_{os.environ.get('RANK_ID', '0')}"

    def on_train_step_end(self, run_context: Any) -> None:
        """Seal what this step has written."""
        seal_files(self.folder)

    def on_train_end(self, run_context: Any) -> None:
        """Seal what the end of training has written."""
        seal_files(self.folder)


def add_seals(config: dict[str, Any]) -> None:
    """Add PclSeals if the configuration writes checkpoints.

    Args:
        config: A MindFormers configuration, changed in place.
    """
    callbacks = config.get("callbacks") or []
    if any(one["type"] == "CheckpointMonitor" for one in callbacks):
        folder = str(Path(config["output_dir"]) / "checkpoint")
        config["callbacks"] = [*callbacks, {"type": "PclSeals", "folder": folder}]
