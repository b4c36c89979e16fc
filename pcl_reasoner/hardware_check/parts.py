"""Lists the parts of ``pclr-ms hardware-check``, each of which runs in a separate process.

    python -m pcl_reasoner.hardware_check PART FOLDER

The part reads FOLDER/setting.json and writes FOLDER/outcome.json. This module is cheap to import.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """The description of one part of the hardware check.

    Args:
        title: What the part checks.
        module: Its module in this package.
        function: The function in that module that runs it: (Setting, folder) -> Outcome.
        devices: Number of Ascend devices that it needs.
        not_on_cpu: Why it does not run on a CPU; empty if it does.
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
    "packed": Part("packed rows against one response per row", "packed", "packed"),
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
        "the time on a CPU does not predict the time on a device",
    ),
}
"""Name -> part, in the order in which they run; the first runs even if it is not requested."""
