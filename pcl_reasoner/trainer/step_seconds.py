"""Writes how long each step took, beside metrics.jsonl, for `pclr-ms plan --measured`.

    seconds.jsonl    {"step": 1, "seconds": 214.02, "after": 0.31, "before": 318.4}
                     {"step": 2, "seconds": 98.71, "after": 0.30}
                     {"step": 100, "seconds": 98.75, "after": 12.92}     a checkpoint was saved

``before``: from the start of the process to its first step (imports, compile, weights).
``seconds``: the step with its metrics. ``after``: from there to the next step, i.e. checkpoint,
seals and rows. metrics.jsonl itself has no times, because equal runs write equal files.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.train.callback import Callback

from pcl_reasoner.core.artifact import SECONDS, write_atomically


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class PclStepSeconds(Callback):
    """Writes a JSON line per step. MindFormers runs it after PclMetrics and before checkpoints.

    PclMetrics has read the step's loss by then, so the device has finished the step.

    Args:
        path: The file.
        rank: The rank that writes, as in PclMetrics.
    """

    def __init__(self, path: str, rank: int = 0, **kwargs: Any) -> None:
        super().__init__()
        self.path = Path(path)
        self.writes = os.environ.get("RANK_ID", "0") == str(rank)
        self.steps_before = 0
        self.began = self.ended = 0.0
        self.line: dict[str, Any] = {}
        """The last step's line, which is written when the next step begins."""
        self.before: float | None = None

    def on_train_begin(self, run_context: Any) -> None:
        """Remove the lines of steps that are trained again."""
        self.steps_before = int(run_context.original_args().train_dataset.get_init_step())
        if self.writes:
            _keep_until(self.path, self.steps_before)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Write the last step's line, and start the clock."""
        self.began = time.monotonic()
        if self.line:
            self.line["after"] = round(self.began - self.ended, 4)
            self._write()
        elif self.before is None:
            self.before = round(process_seconds(), 2)

    def on_train_step_end(self, run_context: Any) -> None:
        """Stop the clock."""
        self.ended = time.monotonic()
        step = self.steps_before + int(run_context.original_args().cur_step_num)
        self.line = {"step": step, "seconds": round(self.ended - self.began, 4)}
        if self.before:
            self.line["before"], self.before = self.before, 0.0

    def on_train_end(self, run_context: Any) -> None:
        """Write the last step's line, which has no ``after``."""
        if self.line:
            self._write()

    def _write(self) -> None:
        if self.writes:
            with self.path.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(self.line) + "\n")
        self.line = {}


def _keep_until(path: Path, last: int) -> None:
    """Keep the lines up to a step. A damaged line is removed: only a time is lost."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    kept = []
    for line in lines:
        try:
            if json.loads(line)["step"] <= last:
                kept.append(line.decode() + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    write_atomically(path, "".join(kept))


def process_seconds() -> float:
    """Seconds since this process was started."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc_pid_stat(5)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def add_step_seconds(config: dict[str, Any]) -> None:
    """Add PclStepSeconds if the configuration has PclMetrics; seconds.jsonl is in the same folder.

    Args:
        config: A MindFormers configuration, changed in place.
    """
    callbacks = config.get("callbacks") or []
    for one in callbacks:
        if one["type"] == "PclMetrics":
            path = str(Path(one["path"]).with_name(SECONDS))
            times = {"type": "PclStepSeconds", "path": path, "rank": one.get("rank", 0)}
            config["callbacks"] = [*callbacks, times]
