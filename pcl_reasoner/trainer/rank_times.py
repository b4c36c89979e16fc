"""Writes one file per rank with the seconds of its last step, to find a slow rank.

    work/rank_times/rank_3      412 3.081 1795287667.2      step, its seconds, its end as Unix time

If a run's hosts are all started from one machine, the environment variable PCL_RANK_TIMES names
the folder for these files. Ranks wait for one another in every step. The seconds of ranks therefore
differ only by the work between communications: reading rows, and running Python.
"""

import os
import time
from pathlib import Path
from typing import Any

from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.train.callback import Callback

RANK_TIMES = "PCL_RANK_TIMES"
_SECONDS_BETWEEN = 1.0


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class PclRankTimes(Callback):
    """Writes the seconds of a rank's last step, at most once per second.

    Args:
        folder: Folder of the files, shared by all ranks.
    """

    def __init__(self, folder: str, **kwargs: Any) -> None:
        super().__init__()
        self.file = Path(folder) / f"rank_{os.environ.get('RANK_ID', '0')}"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        self.written = 0.0

    def on_train_step_begin(self, run_context: Any) -> None:
        """Start the clock."""
        self.began = time.monotonic()

    def on_train_step_end(self, run_context: Any) -> None:
        """Write the step's seconds."""
        now = time.monotonic()
        if now - self.written < _SECONDS_BETWEEN:
            return
        self.written = now
        step = int(run_context.original_args().cur_step_num)
        # One short write: a reader that sees half of it tries again later.
        self.file.write_text(f"{step} {now - self.began:.4f} {time.time():.1f}\n", encoding="utf-8")


def add_rank_times(config: dict[str, Any]) -> None:
    """Add PclRankTimes if the environment variable PCL_RANK_TIMES is set.

    Args:
        config: A MindFormers configuration, changed in place.
    """
    folder = os.environ.get(RANK_TIMES)
    if folder:
        # First in the list: a step's seconds then end before the other callbacks run.
        times = {"type": "PclRankTimes", "folder": folder}
        config["callbacks"] = [times, *(config.get("callbacks") or [])]
