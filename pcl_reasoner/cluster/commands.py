"""The exact commands of every host: msrun for training, a vLLM server for sampling.

    {"node01": [("train: rank 0 to 7", "source …/set_env.sh && msrun --worker_num=128 … "), …], …}

Nothing is started here. The commands can be pasted, or written into a script for a scheduler.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from pcl_reasoner.errors import InputError
from pcl_reasoner.plan import Plan, PlannedStage
from pcl_reasoner.schema import Placement

SERVED_STAGES = ("sample", "evaluate")
_ENTRY = "python -m pcl_reasoner.train"


def commands_for_plan(plan: Plan) -> dict[str, list[tuple[str, str]]]:
    """The commands of a plan, by host, in the order of the stages.

    Args:
        plan: What is to run.

    Returns:
        Host -> (purpose, command); on a laptop there is one host and one process a train stage.

    Raises:
        InputError: A train stage's layout does not fit the launch file's devices.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for planned in plan.stages:
        for host, purpose, command in _commands(planned):
            found.setdefault(host, []).append((purpose, command))
    return found


def _commands(planned: PlannedStage) -> Iterator[tuple[str, str, str]]:
    placement = planned.recipe.launch.placement
    if planned.spec.type == "train":
        yield from _train(planned, placement)
    elif planned.spec.type in SERVED_STAGES and _is_served_by_hand(planned):
        yield from _serve(planned, placement)


def _is_served_by_hand(planned: PlannedStage) -> bool:
    """Whether a person starts the server: not where the stage does, or samples by itself."""
    engine: str = planned.spec.config.engine  # type: ignore[attr-defined]
    return engine == "server" and planned.recipe.launch.placement.sampling is None


def _train(planned: PlannedStage, placement: Placement) -> Iterator[tuple[str, str, str]]:
    devices: int = planned.spec.config.devices  # type: ignore[attr-defined]
    offered = len(placement.hosts) * placement.devices_per_host
    if devices != offered:
        raise InputError(
            f"stage {planned.title}: data x tensor x pipeline parallel = {devices} ranks, the "
            f"launch file offers {len(placement.hosts)} hosts x {placement.devices_per_host} "
            f"devices = {offered}. Make them equal."
        )
    config = shlex.quote(str(planned.partial / "mindformers.yaml"))
    for rank, host in enumerate(placement.hosts):
        first = rank * placement.devices_per_host
        last = first + placement.devices_per_host - 1
        start = (
            f"{_ENTRY} {config}"
            if offered == 1
            else f"{_msrun(placement, offered, rank)} {_ENTRY} {config}"
        )
        place = f"cd {shlex.quote(str(planned.partial))}"
        command = " && ".join([*_environment(placement), place, start])
        yield host, f"{planned.title}: ranks {first} to {last}", command


def _msrun(placement: Placement, workers: int, rank: int) -> str:
    """msrun with the arguments that it takes; it starts ``python`` from PATH."""
    arguments: dict[str, Any] = {
        "worker_num": workers,
        "local_worker_num": placement.devices_per_host,
        "master_addr": placement.hosts[0],
        "master_port": placement.master_port,
        "node_rank": rank,
        "log_dir": placement.log_dir,
        "join": True,
        "cluster_time_out": placement.cluster_time_out,
    }
    return " ".join(["msrun", *(f"--{key}={value}" for key, value in arguments.items())])


def _serve(planned: PlannedStage, placement: Placement) -> Iterator[tuple[str, str, str]]:
    """One vLLM server a host (vllm-ascend on NPUs), with this stage's context length."""
    role = "policy" if planned.spec.type == "sample" else "model"
    config = planned.spec.config
    served: str = config.served_model  # type: ignore[attr-defined]
    length: int = config.max_model_len  # type: ignore[attr-defined]
    arguments = [
        "vllm serve",
        shlex.quote(str(planned.inputs[role].path)),
        f"--served-model-name {shlex.quote(served)}",
        f"--host 0.0.0.0 --port {placement.server_port}",
        f"--tensor-parallel-size {placement.server_devices}",
        f"--max-model-len {length}",
        # Sampling defaults of the weights' folder must not slip into what the recipe says.
        "--generation-config vllm",
    ]
    command = " && ".join([*_environment(placement), " ".join(arguments)])
    for host in placement.hosts:
        yield host, f"{planned.title}: server", command


def _environment(placement: Placement) -> list[str]:
    source = [f"source {shlex.quote(placement.set_env)}"] if placement.set_env else []
    exports = [f"export {name}={shlex.quote(value)}" for name, value in placement.env.items()]
    return source + exports
