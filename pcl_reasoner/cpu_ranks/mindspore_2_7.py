"""Makes MindSpore treat a CPU process as rank k of N on Ascend, by way of its internals.

MindSpore's semi_auto_parallel mode, needed for tensor and pipeline parallelism, refuses a CPU. But
the front end, which needs no device, makes all decisions of that mode: operator strategies,
redistribution, the split into pipeline stages, optimizer sharding. ``pretend`` makes MindSpore
treat this process as rank k of N on Ascend, to compile only. ``MS_DEV_PRECOMPILE_ONLY``,
MindSpore's own switch, ends the compile before it needs a back end. A process that also executes
the graph (become.py) uses the functions for MindSpore's Python side. No file of the wheel is
changed.
"""

import ctypes
import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

VERSIONS = ("2.7.1", "2.7.2")
"""Wheels whose internals match the assumptions in this file."""

GRAPH_PASS = "validate"
"""Last pass of the front end; the graph is read as it is after this pass."""

_TARGET = "Ascend"
WORLD = "hccl_world_group"
"""MindSpore's name for the group of all ranks."""
_MANAGER_METHODS = 7
"""Number of entries in the virtual table of MindSpore's C++ class CommManager: two destructors,
CreateGroupSync, DestroyGroup, GetRankID, GetRankSize, GetRank."""

_alive: list[Any] = []
"""Objects that C++ holds pointers to; a reference keeps them from being garbage-collected."""


def environment(graphs: Path) -> dict[str, str]:
    """Return environment variables that must be set before MindSpore is imported.

    Args:
        graphs: Folder to which MindSpore writes the compiled graph as text.
    """
    return {
        "MS_DEV_PRECOMPILE_ONLY": "1",
        "MS_DEV_SAVE_GRAPHS": "1",
        "MS_DEV_SAVE_GRAPHS_PATH": str(graphs),
        "MS_DEV_DUMP_IR_PASSES": GRAPH_PASS,
        # Log errors with their reasons, but no warnings.
        "GLOG_v": "3",
        "GLOG_logtostderr": "1",
    }


def machine_problem() -> str | None:
    """Return why this machine or wheel cannot run the front-end compile; None if it can."""
    machine = platform.machine()
    if machine != "x86_64":
        return (
            f"the front-end parallel compile is for x86-64 only, this machine is {machine}: it "
            "changes the internals of MindSpore's x86-64 wheel. Compile on an x86-64 machine; on "
            "a machine with CANN, --with-cann runs on any architecture."
        )
    version = metadata.version("mindspore")
    if version not in VERSIONS:
        return (
            f"the front-end parallel compile needs MindSpore {' or '.join(VERSIONS)}, whose "
            f"internals it uses, got {version}. Install one of them: "
            f"pip install mindspore=={VERSIONS[-1]}"
        )
    return None


def pretend(rank: int, world: int) -> dict[str, list[int]]:
    """Make MindSpore treat this process as one of ``world`` ranks on Ascend, for compiling only.

    Call this before a Cell is built and before mindformers is imported.

    Args:
        rank: The rank, from 0.
        world: Number of ranks.

    Returns:
        Communication groups: name -> ranks in order. Compiling a graph adds them to this dict.

    Raises:
        RuntimeError: The wheel's binary layout differs from the assumed one.
    """
    os.environ.update(RANK_ID=str(rank), RANK_SIZE=str(world), DEVICE_ID="0")
    groups: dict[str, list[int]] = {}
    import mindspore

    libraries = Path(mindspore.__file__).parent / "lib"
    try:
        _set_target(ctypes.CDLL(str(libraries / "libmindspore_core.so")))
        common = ctypes.CDLL(str(libraries / "libmindspore_common.so"))
        _replace_manager(common, rank, world, groups)
    except (AttributeError, ValueError, UnicodeDecodeError) as error:
        raise RuntimeError(
            f"MindSpore's wheel has an unexpected binary layout ({error}). The front-end parallel "
            f"compile was made for {' and '.join(VERSIONS)} on x86-64."
        ) from error
    replace_python_side(rank, world, groups)
    return groups


def _text(address: int) -> str:
    """Read a std::string of the older ABI: one pointer to zero-terminated characters."""
    characters = ctypes.c_void_p.from_address(address).value
    found = ctypes.cast(characters or 0, ctypes.c_char_p).value
    return (found or b"").decode()


def _set_target(core: Any) -> None:
    """Set MsContext's ``device_target`` to Ascend without its setter, which would load a plugin."""
    from mindspore import context
    from mindspore._c_expression import ms_ctx_param

    instance = ctypes.c_void_p.in_dll(core, "_ZN9mindspore9MsContext13inst_context_E").value
    read = core._ZNK9mindspore9MsContext9get_paramISsEERKT_NS_10MsCtxParamE
    read.argtypes, read.restype = [ctypes.c_void_p, ctypes.c_int], ctypes.c_void_p
    address = read(instance, int(ms_ctx_param.device_target))
    if _text(address) != context.get_context("device_target"):
        raise ValueError("device_target is not at the expected address")
    assign = ctypes.CDLL("libstdc++.so.6")._ZNSs6assignEPKcm
    assign.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    assign.restype = ctypes.c_void_p
    assign(address, _TARGET.encode(), len(_TARGET))
    if context.get_context("device_target") != _TARGET:
        raise ValueError("device_target did not change")


def _replace_manager(common: Any, rank: int, world: int, groups: dict[str, list[int]]) -> None:
    """Replace CommManager's virtual table, so that it answers as ``rank`` of ``world`` ranks."""
    get = common._ZN9mindspore11CommManager11GetInstanceEv
    get.argtypes, get.restype = [], ctypes.c_void_p
    table_pointer = ctypes.c_void_p.from_address(get())
    first = int(table_pointer.value or 0)
    old = (ctypes.c_void_p * _MANAGER_METHODS).from_address(first)
    type_information = ctypes.c_void_p.from_address(first - ctypes.sizeof(ctypes.c_void_p)).value
    ours = _manager_methods(rank, world, groups)
    create, *queries = (ctypes.cast(method, ctypes.c_void_p).value for method in ours)
    methods = (old[0], old[1], create, old[3], *queries)
    table = (ctypes.c_void_p * (_MANAGER_METHODS + 2))(0, type_information, *methods)
    table_pointer.value = ctypes.addressof(table) + 2 * ctypes.sizeof(ctypes.c_void_p)
    _alive.extend([*ours, table])
    # Check the assumed table through a virtual call of C++ itself.
    ask = common._ZN9mindspore7GetRankEv
    ask.argtypes, ask.restype = [], ctypes.c_uint32
    if ask() != rank:
        raise ValueError(f"C++ reports rank {ask()}, expected {rank}")


def _manager_methods(rank: int, world: int, groups: dict[str, list[int]]) -> list[Any]:
    """Return CreateGroupSync, GetRankID, GetRankSize and GetRank as functions for C++."""
    with_output = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

    def create(_: int, name: int, vector: int) -> bool:
        begin, end = (ctypes.c_void_p * 2).from_address(vector)
        size = ((end or 0) - (begin or 0)) // ctypes.sizeof(ctypes.c_uint32)
        groups[_text(name)] = list((ctypes.c_uint32 * size).from_address(begin)) if begin else []
        return True

    def rank_id(_: int, name: int, output: int) -> bool:
        ranks = groups.get(_text(name), range(world))
        ctypes.c_uint32.from_address(output).value = ranks.index(rank) if rank in ranks else 0
        return True

    def rank_size(_: int, name: int, output: int) -> bool:
        ctypes.c_uint32.from_address(output).value = len(groups.get(_text(name), range(world)))
        return True

    own_rank = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(lambda _: rank)
    return [with_output(create), with_output(rank_id), with_output(rank_size), own_rank]


def replace_python_side(
    rank: int,
    world: int,
    groups: dict[str, list[int]],
    barrier: Callable[[str], Any] | None = None,
) -> None:
    """Replace MindSpore's Python functions for communication groups, devices and barriers.

    A communication operator calls these functions to get the size of its group.

    Args:
        rank: The rank, from 0.
        world: Number of ranks.
        groups: Communication groups: name -> ranks in order.
        barrier: Waits for all ranks of a group, given by its name; None: there are no other ranks.
    """
    import mindspore
    import mindspore.communication as communication
    import mindspore.communication.comm_func as functions
    from mindspore import context
    from mindspore.communication import _comm_helper as helper
    from mindspore.communication import management

    helper.CollectiveManager = _collective_manager(rank, world, groups)
    helper.GlobalComm.INITED = True
    helper.GlobalComm.BACKEND = "hccl"
    helper.GlobalComm.WORLD_COMM_GROUP = WORLD
    management.init = communication.init = _nothing
    wait = barrier or _nothing
    functions.barrier = lambda group=WORLD: wait(group)
    # The setters would load the plugin of a device that this machine lacks.
    mindspore.set_device = _nothing
    context._Context.set_device_target = _nothing
    context._Context.setters["device_target"] = _nothing


def say_ascend() -> None:
    """Make ``get_context("device_target")`` say Ascend; C++ code still sees the CPU."""
    from mindspore import context
    from mindspore._c_expression import ms_ctx_param

    read = context._Context.get_param

    def get_param(self: Any, name: Any) -> Any:
        return _TARGET if name == ms_ctx_param.device_target else read(self, name)

    context._Context.get_param = get_param


def _nothing(*_: Any, **__: Any) -> None:
    """Replaces functions that would contact other ranks or a device."""


def _collective_manager(rank: int, world: int, groups: dict[str, list[int]]) -> type:
    """Return a class that replaces CollectiveManager and answers as ``rank`` of ``world`` ranks."""

    def ranks_of(name: str) -> list[int]:
        return groups.get(name) or list(range(world))

    class Pretended:
        """Answers from ``groups``; creating a group only records it there."""

        @classmethod
        def get_instance(cls) -> type:
            return cls

        initialized = staticmethod(lambda: True)
        get_rank_id = staticmethod(
            lambda name: ranks_of(name).index(rank) if rank in ranks_of(name) else 0
        )
        get_group_size = staticmethod(lambda name: len(ranks_of(name)))
        get_local_rank_id = staticmethod(lambda name: rank % 8)
        get_local_group_size = staticmethod(lambda name: min(8, world))
        get_group_ranks = staticmethod(ranks_of)
        get_group_map = staticmethod(lambda: dict(groups))
        get_world_rank_from_group_rank = staticmethod(lambda name, index: ranks_of(name)[index])
        get_group_rank_from_world_rank = staticmethod(lambda one, name: ranks_of(name).index(one))

        @staticmethod
        def create_group(name: str, ranks: list[int], options: Any = None) -> bool:
            groups[name] = list(ranks)
            return True

    return Pretended


def compile_in_place_of_training(done: Callable[[Any, float], None]) -> None:
    """Make ``Model.train`` compile its step on the first batch, and then call ``done``.

    Args:
        done: Gets the compiled network and the seconds of the compile.
    """
    import mindspore
    from mindspore.common.api import _cell_graph_executor
    from mindspore.train import Model

    def train(self: Any, epoch: int, dataset: Any, *_: Any, **__: Any) -> None:
        network = self._train_network
        network.set_train()
        batch = next(dataset.create_tuple_iterator(num_epochs=1, output_numpy=True))
        columns = [mindspore.Tensor(column) for column in batch]
        began = time.monotonic()
        _cell_graph_executor.compile(network, *columns, phase="train")
        done(network, time.monotonic() - began)

    Model.train = train


def parameters_of(network: Any, groups: Mapping[str, list[int]]) -> list[dict[str, Any]]:
    """Return the compiled rank's trained parameters, as described at `Compiled.parameters`.

    MindSpore's layout of a parameter is (device matrix, tensor map, slice shape, field size,
    uniform split, optimizer-shard group, shapes before and after a reshape …).

    Args:
        network: The compiled network.
        groups: Group name -> ranks.
    """
    trained = {parameter.name for parameter in network.weights}
    found = []
    for name, layout in network.parameter_layout_dict.items():
        if name not in trained:
            continue
        matrix, tensor_map, cut, group = layout[0], layout[1], list(layout[2]), layout[5]
        ranks = groups[group] if group else []
        held = [cut[0] // len(ranks), *cut[1:]] if ranks else cut
        # The tensor map counts the device matrix's axes from its end; -1 means not cut.
        parts = [1 if axis < 0 else matrix[-1 - axis] for axis in tensor_map]
        whole = [size * part for size, part in zip(cut, parts, strict=True)]
        shapes = {"whole": whole, "slice": cut, "optimizer_group": ranks, "held": held}
        found.append({"name": name, **shapes})
    return found
