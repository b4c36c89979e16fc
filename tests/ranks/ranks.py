"""Rank k of N as a process of this machine: what is compiled for Ascend runs on the CPU.

    python ranks.py RANK WORLD FOLDER LIBRARY PROGRAM [WORD …]

runs a Python program as that rank. Its graphs go through MindSpore's own front end, which cuts them
for N Ascend devices, and its own CPU back end; collectives are NumPy (rank_kernels.py). It shows
the arithmetic of the graph. It shows nothing about an NPU's kernels.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from rank_kernels import EXACT, EXACT_KERNELS, Collectives, Kernel
from rank_messages import Mailbox

from pcl_reasoner.precompile import mindspore_2_7

HELPERS = Path(__file__).resolve().parent.parent / "helpers"

_TEXT, _POINTER = ctypes.c_char_p, ctypes.c_void_p
_ARRAYS = (ctypes.c_int, ctypes.POINTER(_POINTER), ctypes.POINTER(_TEXT))
_RUN_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, _TEXT, _TEXT, *_ARRAYS, *_ARRAYS)
_NEW_GROUP = ctypes.CFUNCTYPE(None, _TEXT, ctypes.c_int, ctypes.POINTER(ctypes.c_uint))

_alive: list[Any] = []
"""What C++ holds pointers to must not be collected."""


def become(rank: int, world: int, folder: Path, library: Path) -> None:
    """Make this process rank ``rank`` of ``world``; before a Cell is built.

    Args:
        rank: From 0.
        world: Ranks in all, each in a process of its own.
        folder: Where ranks have their sockets.
        library: The built extension.
    """
    os.environ.update(RANK_ID=str(rank), RANK_SIZE=str(world), DEVICE_ID="0")
    import mindspore

    mindspore.set_context(device_target="CPU")
    groups = {mindspore_2_7.WORLD: list(range(world))}
    kernels = Collectives(rank, Mailbox(rank, folder), groups).kernels()
    if os.environ.get(EXACT_KERNELS) == "1":
        kernels |= EXACT
    extension = ctypes.CDLL(str(library))
    _install(extension, rank, world, groups, kernels)
    mindspore_2_7.replace_python_side(rank, world, groups)
    _compile_for_ascend(extension)


def _install(
    extension: Any, rank: int, world: int, groups: dict[str, list[int]], kernels: dict[str, Kernel]
) -> None:
    def run(name: bytes, attributes: bytes, *arrays: Any) -> int:
        try:
            kernels[name.decode()](_read(attributes), _arrays(*arrays[:3]), _arrays(*arrays[3:]))
        except BaseException:
            # C++ only learns that it failed.
            traceback.print_exc()
            return 1
        return 0

    def new_group(name: bytes, size: int, ranks: Any) -> None:
        groups[name.decode()] = [ranks[place] for place in range(size)]

    both = _RUN_KERNEL(run), _NEW_GROUP(new_group)
    _alive.extend([extension, *both])
    names = (_TEXT * len(kernels))(*(name.encode() for name in kernels))
    found = extension.ranks_install(rank, world, *both, len(kernels), names)
    if found != 1:
        raise RuntimeError(
            f"MindSpore's wheel has another layout than the one that is assumed: {found} calls of "
            "its back end were found, expected 1."
        )


def _read(attributes: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in attributes.decode().splitlines())
    return {key: value for key, _, value in pairs}


def _arrays(count: int, places: Any, texts: Any) -> list[np.ndarray]:
    """Arrays over the memory of inputs or outputs; scalars have none and are left out."""
    found = []
    for place, text in zip(places[:count], texts[:count], strict=True):
        kind, size, shape = text.decode().split(":")
        if not place:
            continue
        memory = (ctypes.c_char * int(size)).from_address(place)
        sizes = [int(one) for one in shape.split(",") if one]
        found.append(
            np.frombuffer(memory, kind.lower(), count=int(np.prod(sizes, initial=1))).reshape(sizes)
        )
    return found


def _compile_for_ascend(extension: Any) -> None:
    """While a graph is compiled the device is called Ascend."""
    from mindspore.common.api import _cell_graph_executor

    inner = _cell_graph_executor._graph_executor

    class Executor:
        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def __call__(self, *words: Any, **named: Any) -> Any:
            return inner(*words, **named)

        def compile(self, *words: Any, **named: Any) -> Any:
            extension.ranks_set_target(b"Ascend")
            try:
                return inner.compile(*words, **named)
            finally:
                extension.ranks_set_target(b"CPU")

    _cell_graph_executor._graph_executor = Executor()


def main() -> None:
    """Run a program as a rank."""
    rank, world, folder, library, program, *words = sys.argv[1:]
    become(int(rank), int(world), Path(folder), Path(library))
    sys.argv = [program, *words]
    sys.path[:0] = [str(Path(program).parent), str(HELPERS)]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
