"""The training process of a hardware-check part: runs MindFormers' Trainer and records each step.

    python -m pcl_reasoner.hardware_check.trainer mindformers.yaml

Every rank writes rank_N.json: {"loss": […], "grad_norm": […], "seconds": […], "peak_memory": …}
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def record_steps() -> type:
    """Return the callback class that writes rank_N.json; its base class is imported only here."""
    import mindspore as ms

    class HardwareSteps(ms.Callback):
        """Records losses, gradient norms and seconds of all steps, and the peak memory."""

        def __init__(self, path: str, **kwargs: Any) -> None:
            super().__init__()
            self.path = Path(path) / f"rank_{os.environ.get('RANK_ID', '0')}.json"
            self.steps: dict[str, Any] = {"loss": [], "grad_norm": [], "seconds": []}
            self.begun = 0.0

        def on_train_step_begin(self, run_context: Any) -> None:
            """Start the clock."""
            self.begun = time.monotonic()

        def on_train_step_end(self, run_context: Any) -> None:
            """Record the step; reading the loss waits until the device has finished."""
            outputs = run_context.original_args().net_outputs
            self.steps["loss"].append(_number(outputs[0]))
            self.steps["grad_norm"].append(_number(outputs[4]))
            self.steps["seconds"].append(time.monotonic() - self.begun)

        def on_train_end(self, run_context: Any) -> None:
            """Write the file."""
            self.steps["peak_memory"] = peak_memory()
            self.path.write_text(json.dumps(self.steps), encoding="utf-8")

    return HardwareSteps


def _number(value: Any) -> float:
    return float(np.ravel(value.asnumpy())[0])


def peak_memory() -> int:
    """Return peak bytes: MindSpore's allocations on a device, the process's memory on a CPU."""
    import mindspore as ms

    if ms.get_context("device_target") == "CPU":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(ms.runtime.max_memory_allocated())


def main(file: str) -> None:
    """Train with a MindFormers YAML whose callbacks include HardwareSteps."""
    from pcl_reasoner.worker import entry

    entry.follow_environment()
    entry.import_mindformers()
    from mindformers.tools.register import MindFormerModuleType, MindFormerRegister

    MindFormerRegister.register(MindFormerModuleType.CALLBACK)(record_steps())
    config, _ = entry.read_config(file, [], None)
    entry.train(config)


if __name__ == "__main__":
    main(sys.argv[1])
