"""Turns this process into rank k of N: the graph that is compiled for Ascend runs on the CPU.

MindSpore's front end cuts the graph for N Ascend devices, and MindSpore's own CPU back end runs it.
Communication and missing kernels are NumPy (collectives.py, kernels.py). It shows the arithmetic of
the graph. It shows nothing about an NPU's kernels.

A training process does this if the environment variables of variables.py are set. It first joins
the cluster that msrun builds, so msrun's scheduler, its time limits and its ranks are real. Python
code sees the device "Ascend", too, so MindFormers and this package take a cluster's branches.
"""

import ctypes
import os
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from pcl_reasoner.cpu_ranks import mindspore_2_7
from pcl_reasoner.cpu_ranks import variables as names
from pcl_reasoner.cpu_ranks.collectives import Arrays, Collectives, Kernel
from pcl_reasoner.cpu_ranks.data_queue import replace_device_queues
from pcl_reasoner.cpu_ranks.messages import Mailbox

_TEXT, _POINTER = ctypes.c_char_p, ctypes.c_void_p
_ARRAYS = (ctypes.c_int, ctypes.POINTER(_POINTER), ctypes.POINTER(_TEXT))
_RUN_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int, _TEXT, _TEXT, *_ARRAYS, *_ARRAYS)
_NEW_GROUP = ctypes.CFUNCTYPE(None, _TEXT, ctypes.c_int, ctypes.POINTER(ctypes.c_uint))

_NO_MEMORY = np.empty(0, np.uint8)
"""An input that has no memory: a scalar, None."""

_alive: list[Any] = []
"""Objects that C++ holds pointers to; a reference keeps them from being garbage-collected."""


def become_rank() -> None:
    """Join msrun's cluster, then become the rank that msrun gave; before mindformers is imported.

    msrun's scheduler, which runs the same program, ends here when the ranks have ended.
    """
    import mindspore
    from mindspore.communication import init

    mindspore.set_context(device_target="CPU")
    if "MS_ROLE" in os.environ:
        init("mccl")
    rank, world = int(os.environ.get("RANK_ID", "0")), int(os.environ.get("MS_WORKER_NUM", "1"))
    become(rank, world, Path(os.environ[names.SOCKETS]), Path(os.environ[names.LIBRARY]))


def become(rank: int, world: int, sockets: Path, library: Path) -> None:
    """Make this process rank ``rank`` of ``world``; before a Cell is built.

    Args:
        rank: The rank, from 0.
        world: Number of ranks; each is a process of this machine.
        sockets: Folder in which the ranks have their sockets.
        library: The built extension.

    Raises:
        RuntimeError: The wheel's binary layout differs from the assumed one.
    """
    os.environ.update(RANK_ID=str(rank), RANK_SIZE=str(world), DEVICE_ID="0")
    import mindspore

    from pcl_reasoner.cpu_ranks.kernels import EXACT, MISSING

    mindspore.set_context(device_target="CPU")
    groups = {mindspore_2_7.WORLD: list(range(world))}
    mailbox = Mailbox(rank, sockets, names.limit_seconds(os.environ))
    collectives = Collectives(rank, mailbox, groups, _stage_of(world))
    kernels = {**collectives.kernels(), **MISSING, **replace_device_queues()}
    if os.environ.get(names.EXACT) == "1":
        kernels |= EXACT
    extension = ctypes.CDLL(str(library))
    _install(extension, rank, world, groups, kernels)
    mindspore_2_7.replace_python_side(rank, world, groups, collectives.barrier)
    mindspore_2_7.say_ascend()
    _compile_for_ascend(extension)


def _stage_of(world: int) -> Any:
    def stage_of(rank: int) -> int:
        import mindspore

        return rank * mindspore.get_auto_parallel_context("pipeline_stages") // world

    return stage_of


def _install(
    extension: Any, rank: int, world: int, groups: dict[str, list[int]], kernels: dict[str, Kernel]
) -> None:
    def run(name: bytes, attributes: bytes, *arrays: Any) -> int:
        try:
            kernels[name.decode()](_read(attributes), _arrays(*arrays[:3]), _arrays(*arrays[3:]))
        except BaseException:
            # C++ gets only the number.
            traceback.print_exc()
            return 1
        return 0

    def new_group(name: bytes, size: int, ranks: Any) -> None:
        groups[name.decode()] = [ranks[index] for index in range(size)]

    both = _RUN_KERNEL(run), _NEW_GROUP(new_group)
    _alive.extend([extension, *both])
    operators = (_TEXT * len(kernels))(*(name.encode() for name in kernels))
    found = extension.ranks_install(rank, world, *both, len(kernels), operators)
    if found != 1:
        raise RuntimeError(
            f"MindSpore's wheel has an unexpected binary layout: {found} calls of its back end "
            "were found, expected 1."
        )


def _read(attributes: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in attributes.decode().splitlines())
    return {key: value for key, _, value in pairs}


def _arrays(count: int, addresses: Any, texts: Any) -> Arrays:
    """Return arrays over the memory of inputs or outputs."""
    found = []
    for address, text in zip(addresses[:count], texts[:count], strict=True):
        if not address:
            found.append(_NO_MEMORY)
            continue
        kind, size, shape = text.decode().split(":")
        memory = memoryview((ctypes.c_char * int(size)).from_address(address)).cast("B")
        sizes = [int(one) for one in shape.split(",") if one]
        flat = np.frombuffer(memory, kind.lower(), count=int(np.prod(sizes, initial=1)))
        found.append(flat.reshape(sizes))
    return found


def _compile_for_ascend(extension: Any) -> None:
    """While a graph is compiled, MindSpore's C++ code sees the device Ascend."""
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
