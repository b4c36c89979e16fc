"""Reads the speed and memory of chips from chips.yaml, which has one block per chip."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.yaml_file import read_yaml

FILE = Path(__file__).with_name("chips.yaml")
DEFAULT_CHIP = "ascend_910c_die"


@dataclass(frozen=True)
class Chip:
    """One device, e.g. one die of an Ascend 910C.

    Every rate except ``peak`` is the published rate x the share that is assumed to be reached.

    Args:
        name: The block's name in chips.yaml.
        title: The device's description.
        peak: Published peak of matrix operations per second in the compute type.
        matrix: Operations per second that matrix products are assumed to reach.
        attention: Operations per second that attention is assumed to reach.
        memory_bytes: Memory of the device.
        memory: Bytes per second of the device's memory.
        node: Bytes per second, one way, to another device of the same node.
        network: Bytes per second, one way, to a device of another node.
        swap: Bytes per second, one way, to the host's memory.
        devices_per_node: Devices per node.
        source: Sources of the published values.
        assumed: The assumed shares, by name.
    """

    name: str
    title: str
    peak: float
    matrix: float
    attention: float
    memory_bytes: int
    memory: float
    node: float
    network: float
    swap: float
    devices_per_node: int
    source: str
    assumed: Mapping[str, float]


def read_chip(name: str, precision: str = "float16") -> Chip:
    """Read a chip's block from chips.yaml.

    Args:
        name: The block's name.
        precision: Compute type of matrix products: ``float16``, ``bfloat16`` or ``float32``.

    Raises:
        InputError: chips.yaml has no such chip.
    """
    chips = read_yaml(FILE)
    if name not in chips:
        raise InputError(
            f"--chip {name}: no such chip.{nearest(name, chips)} Known: {', '.join(chips)}."
        )
    block = chips[name]
    assumed = {key: float(share) for key, share in block["assumed"].items()}
    peak = block["matrix_tera"][precision] * 1e12
    return Chip(
        name=name,
        title=block["title"],
        peak=peak,
        matrix=peak * assumed["matrix"],
        attention=peak * assumed["attention"],
        memory_bytes=block["memory_gib"] * 2**30,
        memory=block["memory_gb_s"] * 1e9 * assumed["memory"],
        node=block["node_gb_s"] * 1e9 * assumed["link"],
        network=block["network_gb_s"] * 1e9 * assumed["link"],
        swap=block["swap_gb_s"] * 1e9 * assumed["link"],
        devices_per_node=block["devices_per_node"],
        source=" ".join(block["source"].split()),
        assumed=assumed,
    )
