"""The exact commands per host: msrun for training, vLLM servers for stages that ask, Ray for data.

    {"node01": [("v1_sft/train: ranks 0 to 7", "source …/set_env.sh && cd … && msrun … "), …], …}

This module starts nothing. The commands can be pasted; scripts.py writes them into files.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import SERVERS, Serving
from pcl_reasoner.core.stage import ServerNeeds
from pcl_reasoner.hosts.msrun import host_steps, training_environment, training_line
from pcl_reasoner.hosts.ray_cluster import PORT as RAY_PORT
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.serving import serve_command
from pcl_reasoner.supervise.environment import environment_steps

CONFIG = "mindformers.yaml"


@dataclass(frozen=True)
class HostCommand:
    """The command that one host runs for one purpose.

    Args:
        host: Name of the host.
        rank: Index of the host, from 0; for Ray, the head's index is 0.
        purpose: Description of the command, e.g. "v1_sft/train: ranks 0 to 7".
        environment: Shell commands that set up the environment.
        place: ``cd`` to the working directory; empty if the command needs none.
        start: The command itself.
        base_env: This package's environment variables; those of the launch file override them.
        contained: Turns a shell line into one that runs in the program's container; None: the
            program runs directly on the host.
        index: Index of the server among those of its host, from 0; 0 for other commands.
    """

    host: str
    rank: int
    purpose: str
    environment: tuple[str, ...]
    place: tuple[str, ...]
    start: str
    base_env: Mapping[str, str] = field(default_factory=dict)
    contained: Callable[[str], str] | None = None
    index: int = 0

    @property
    def line(self) -> str:
        """Environment, directory and command as one shell line to paste."""
        if self.contained is not None:
            return self.contained(
                " && ".join([*self.environment, *self.place, f"exec {self.start}"])
            )
        return " && ".join([*self.environment, *self.place, self.start])


@dataclass(frozen=True)
class HostCommands:
    """The commands of all hosts that start one stage's training, or one kind of its servers.

    Args:
        name: Name for the folder of their scripts: the stage's, e.g. ``train``; for servers of a
            judge or a reward model ``grade.judging``, ``grade.scoring``; for servers of a stage
            that also trains ``rl_1.sampling``.
        commands: One command per host, in the order of the hosts.
        placement: The part of the launch file's machines that these hosts are.
        needs: What the servers must offer; None for training.
        serving: How the servers are started; None for training.
    """

    name: str
    commands: tuple[HostCommand, ...]
    placement: Placement
    needs: ServerNeeds | None = None
    serving: Serving | None = None


def commands_for_plan(plan: Plan) -> dict[str, list[tuple[str, str]]]:
    """Return the commands of a plan by host, in the order of the stages.

    Args:
        plan: The stages to run.

    Returns:
        Host -> list of (purpose, command). With one host and one device, training is a single
        process.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for planned in plan.stages:
        for group in host_commands(planned):
            for one in group.commands:
                found.setdefault(one.host, []).append((one.purpose, one.line))
    return found


def host_commands(planned: PlannedStage) -> list[HostCommands]:
    """Return the commands that train, and those that start the servers that the stage asks.

    There are none for servers that the stage starts itself, and for servers whose weights the
    recipe does not name.
    """
    return [*_training(planned), *_servers(planned)]


def _training(planned: PlannedStage) -> Iterator[HostCommands]:
    config = planned.spec.config
    if config.runs_on_hosts:
        placement = config.trains_on(planned.recipe.launch.placement)
        yield HostCommands(planned.spec.name, tuple(_train(planned, placement)), placement)


def _servers(planned: PlannedStage) -> Iterator[HostCommands]:
    config, name = planned.spec.config, planned.spec.name
    placement = config.serves_on(planned.recipe.launch.placement)
    for needs in config.servers(planned.inputs):
        by_hand = SERVERS[needs.kind].can_start and placement.serving_of(needs.kind) is None
        if by_hand and needs.role in planned.inputs:
            alone = needs.kind == "sampling" and not config.runs_on_hosts
            folder = name if alone else f"{name}.{needs.kind}"
            serving = placement.described(needs.kind) or Serving(executable="vllm")
            commands = tuple(_serve(planned, needs, placement, serving))
            yield HostCommands(folder, commands, placement, needs, serving)


def _train(planned: PlannedStage, placement: Placement) -> Iterator[HostCommand]:
    a_host, folder = placement.devices_per_host, planned.partial
    base_env = training_environment(folder, a_host * len(placement.hosts), a_host)
    contained = partial(training_line, placement) if placement.training.container else None
    for rank, host in enumerate(placement.hosts):
        ranks = f"ranks {rank * a_host} to {(rank + 1) * a_host - 1}"
        steps = host_steps(placement, rank, folder, str(folder / CONFIG), base_env=base_env)
        *environment, place, start = steps
        purpose = f"{planned.title}: {ranks}"
        if planned.spec.config.waits_for_runner:
            purpose += "; run --start ssh starts them, once for all rounds"
        steps_before = (tuple(environment), (place,))
        yield HostCommand(host, rank, purpose, *steps_before, start, base_env, contained)


def _serve(
    planned: PlannedStage, needs: ServerNeeds, placement: Placement, serving: Serving
) -> Iterator[HostCommand]:
    """Yield one command per server of each host, with the stage's context length."""
    what = "server" if needs.kind == "sampling" else f"server of {SERVERS[needs.kind].model}"
    model = planned.inputs[needs.role].path
    for rank, host in enumerate(placement.hosts):
        environment = serve_command.environment_of(serving, placement, host)
        for index in range(serving.servers):
            start, contained = _serve_start(needs, placement, serving, model, index)
            purpose = f"{planned.title}: {what}"
            purpose += f" {index + 1} of {serving.servers}" if serving.servers > 1 else ""
            yield HostCommand(
                host=host,
                rank=rank,
                purpose=purpose,
                environment=tuple(environment),
                place=(),
                start=start,
                contained=contained,
                index=index,
            )


def _serve_start(
    needs: ServerNeeds, placement: Placement, serving: Serving, model: Path, index: int
) -> tuple[str, Callable[[str], str] | None]:
    """Return the command of one server of a host, and what puts it into its container."""
    port = placement.first_port(needs.kind) + index
    offered = serve_command.ServedAs(needs.name, needs.max_model_len, needs.template)
    kind = (needs.kind == "scoring" and not needs.replaceable, needs.replaceable)
    words = serve_command.command(serving, placement, model, offered, port, "0.0.0.0", *kind)
    if serving.container is not None:
        contained = partial(serve_command.contained, serving, placement, index, port)
        return shlex.join(words), contained
    devices = [
        f"{name}={value}"
        for name, value in serve_command.devices_of(serving, placement, index).items()
    ]
    return shlex.join([*(["env", *devices] if devices else []), *words]), None


def ray_commands(placement: Placement) -> list[HostCommand]:
    """Return the commands that start a Ray cluster on the launch file's hosts, the head first.

    Args:
        placement: The launch file's settings.

    Returns:
        One command per host. Empty if the data stages run locally, if no address is set, or if the
        cluster's head is not one of these hosts.
    """
    if placement.data.engine != "ray" or not placement.data.address:
        return []
    head, port, client = ray_address(placement)
    if head not in placement.hosts:
        return []
    others = [host for host in placement.hosts if host != head]
    heads_own = f" --ray-client-server-port={client}" if client else ""
    return [
        _ray(placement, rank, host, f"--head --port={port}{heads_own}")
        if host == head
        else _ray(placement, rank, host, f"--address={head}:{port}")
        for rank, host in enumerate([head, *others])
    ]


def ray_address(placement: Placement) -> tuple[str, int, int | None]:
    """Parse ``auto``, ``ray://head:10001`` or ``head:6379`` into (head, port, client port)."""
    address = placement.data.address or "auto"
    if address == "auto":
        return placement.hosts[0], RAY_PORT, None
    name, _, port = address.removeprefix("ray://").partition(":")
    number = int(port) if port.isdigit() else None
    if address.startswith("ray://"):
        return name, RAY_PORT, number
    return name, number or RAY_PORT, None


def _ray(placement: Placement, rank: int, host: str, words: str) -> HostCommand:
    base_env = {"RAY_USAGE_STATS_ENABLED": "0"}
    environment = tuple(environment_steps(placement, host, base_env=base_env))
    # In the foreground, so that the shell or job that starts Ray can also end it.
    return HostCommand(host, rank, "Ray", environment, (), f"ray start {words} --block", base_env)
