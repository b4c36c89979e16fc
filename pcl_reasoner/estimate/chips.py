"""Reads the speed and memory of a chip: a block of chips.yaml, or a user's own file.

placement: {chip: ascend_910b}            a block of chips.yaml
placement: {chip: chips/ascend_910b2.yaml}    a file with one block of the same keys
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import expanded, nearest
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.yaml_file import read_yaml

FILE = Path(__file__).with_name("chips.yaml")
DEFAULT_CHIP = "ascend_910c_die"
WHOLE = ("memory_gib", "devices_per_node")
"""Keys of a block that are whole numbers."""


@dataclass(frozen=True)
class Chip:
    """One device, e.g. one die of an Ascend 910C.

    Every rate except ``peak`` is the published rate x the share that is assumed to be reached.

    Args:
        name: The block's name.
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
        measured: Names of the shares that a run has measured.
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
    measured: frozenset[str] = frozenset()


def chip_name(given: str | None, placement: Placement) -> str:
    """The chip to estimate for: the user's, else the launch file's, else the default."""
    return given or placement.chip or DEFAULT_CHIP


def read_chip(name: str, precision: str = "float16") -> Chip:
    """Read a chip's block from chips.yaml, or from a file of the same form.

    Args:
        name: The block's name; or the path of a YAML file with one block.
        precision: Compute type of matrix products: ``float16``, ``bfloat16`` or ``float32``.

    Raises:
        InputError: chips.yaml has no such chip, or the file is not a chip's.
    """
    name, block = _own_block(name) if name.endswith((".yaml", ".yml")) else _known_block(name)
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


def _known_block(name: str) -> tuple[str, Mapping[str, Any]]:
    chips = read_yaml(FILE)
    if name not in chips:
        raise InputError(
            f"chip {name}: no such chip.{nearest(name, chips)} Known: {', '.join(chips)}. For "
            "another, give the path of a YAML file with one block like those of "
            "pcl_reasoner/estimate/chips.yaml."
        )
    return name, chips[name]


def _own_block(file: str) -> tuple[str, Mapping[str, Any]]:
    """(name, block) of a user's file; the block has the keys and kinds of the default chip's."""
    value = read_yaml(expanded(file))
    if len(value) != 1 or not isinstance(next(iter(value.values())), Mapping):
        raise InputError(f"{file}: expected one chip, NAME: {{title: …}}, got {len(value)} keys.")
    ((name, block),) = value.items()
    problems = list(_problems(block, read_yaml(FILE)[DEFAULT_CHIP], ""))
    if problems:
        raise InputError("\n".join(f"{file}: {name}.{problem}" for problem in problems))
    return str(name), block


def _problems(block: Mapping[str, Any], like: Mapping[str, Any], above: str) -> Iterator[str]:
    """Yield one sentence per key of a chip that is missing, unknown or of another kind."""
    for key in block.keys() - like.keys():
        yield f"{above}{key}: no such key.{nearest(str(key), like)}"
    for key, example in like.items():
        found = block.get(key)
        if found is None:
            yield f"{above}{key}: missing; chips.yaml says what it means"
        elif isinstance(example, Mapping) and isinstance(found, Mapping):
            yield from _problems(found, example, f"{above}{key}.")
        elif expected := _expected(key, example, above, found):
            yield f"{above}{key}: expected {expected}, got {found!r}"


def _expected(key: str, example: Any, above: str, found: Any) -> str:
    """What a value should be; empty if it is."""
    if isinstance(example, Mapping):
        return "a mapping"
    if isinstance(example, str):
        return "" if isinstance(found, str) else "a text"
    if isinstance(found, bool) or not isinstance(found, int | float) or found <= 0:
        return "a number above 0"
    if above == "assumed." and found > 1:
        return "a share, at most 1"
    return "a whole number" if key in WHOLE and not isinstance(found, int) else ""
