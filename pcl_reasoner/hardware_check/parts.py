"""The parts of ``pclr-ms hardware-check``, each of which runs in a process of its own.

    python -m pcl_reasoner.hardware_check.parts PART FOLDER

FOLDER holds setting.json, and the part leaves outcome.json there. Cheap to import.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FIGURES = Path(__file__).with_name("figures.json")
"""What a CPU found, in float32; ``pclr-ms hardware-check --write-figures`` writes it."""


@dataclass(frozen=True)
class Part:
    """What is known of a part without running it.

    Args:
        title: What it looks at.
        module: Module of this package.
        function: In it; a Setting -> an Outcome.
        devices: Ascend devices that it takes at least.
        not_on_cpu: Why it does not run on a CPU; empty where it does.
    """

    title: str
    module: str
    function: str
    devices: int = 1
    not_on_cpu: str = ""


PARTS: dict[str, Part] = {
    "devices": Part("devices that MindSpore sees", "devices", "devices", 0),
    "kernels": Part("attention, RMS norm, rotary embedding against NumPy", "kernels", "kernels"),
    "losses": Part("losses and their gradients against NumPy", "loss_cells", "loss_cells"),
    "packed": Part("packed rows against one response a row", "packed", "packed"),
    "training": Part("five steps of a small model against the figures", "training", "one_device"),
    "data_parallel": Part("the same on two ranks", "training", "data_parallel", 2),
    "tensor_pipeline": Part(
        "the same, tensor x pipeline parallel 2 x 2",
        "training",
        "tensor_pipeline",
        4,
        "MindSpore has no tensor or pipeline parallelism on a CPU",
    ),
    "layers": Part(
        "time and memory of two layers of a 32B model",
        "training",
        "layers",
        1,
        "a CPU's time says nothing of a device's",
    ),
}
"""In the order in which they run; the first is always run."""
