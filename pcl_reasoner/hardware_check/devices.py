"""Finds the devices that MindSpore sees."""

import os
from pathlib import Path

from pcl_reasoner.hardware_check.outcome import Outcome, Setting


def devices(setting: Setting, folder: Path) -> Outcome:
    """Report kind and number of the devices, and the first one's name; a CPU is one device."""
    import mindspore as ms

    if not ms.device_context.ascend.is_available():
        return Outcome(measured={"kind": "CPU", "count": 1, "cores": os.cpu_count()})
    count = int(ms.device_context.ascend.device_count())
    try:
        name = str(ms.hal.get_device_name(0, "Ascend"))
    except (RuntimeError, ValueError) as error:  # the name is optional
        name = f"unknown ({type(error).__name__})"
    measured = {"kind": "Ascend" if count else "CPU", "count": max(count, 1), "name": name}
    return Outcome(measured=measured | {"cores": os.cpu_count()})


def use(device: str) -> None:
    """Set MindSpore's device and compile mode, as a rendered training YAML does."""
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE, device_target=device)
    if device != "CPU":
        ms.set_context(jit_config={"jit_level": "O0"})


def use_mindformers(device: str) -> None:
    """Import MindFormers and set the device as ``use`` does; on a CPU, install our operators."""
    from pcl_reasoner.trainer.mindformers_1_8 import install_cpu_operators
    from pcl_reasoner.worker.entry import import_mindformers

    import_mindformers()
    use(device)
    install_cpu_operators()
