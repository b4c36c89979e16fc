"""Asks the launch file's hosts, all at once, whether they can do what the stages need of them.

node03: it does not answer: is it up, and is the link?
node05: mindspore is 2.7.1, here 2.7.2: install the same on all hosts.
sampling on node05: /opt/nnal/set_env.sh is not there, expected a file that can be read. …
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.hosts.checks import Needs, check_and_count
from pcl_reasoner.preflight.reading import trains_on_device
from pcl_reasoner.preflight.running import few
from pcl_reasoner.runner.sources import path_of
from pcl_reasoner.scene.graph import Given, Node, Scene
from pcl_reasoner.scene.model_facts import model_of, weights_of
from pcl_reasoner.supervise.connection import LOCAL, SSH
from pcl_reasoner.train.shape import training_of
from pcl_reasoner.train.worker import saved_bytes
from pcl_reasoner.version_check.hosts import (
    Engine,
    Finding,
    check_engines,
    programs_of,
    trains_on_ascend,
)

SECONDS = 30.0
"""Seconds that each host has to answer, besides ``ssh.connect_seconds``; all are asked at once."""
_TRAINED_BYTES = 12
"""Bytes of a checkpoint per weight: the weight and AdamW's two moments in float32."""


class HostCheck(NamedTuple):
    """What the hosts answered, a sentence each.

    Args:
        errors: What would end the run.
        misfits: Versions that versions.yaml does not have together.
        warnings: What could not be checked.
    """

    errors: list[str]
    misfits: list[str]
    warnings: list[str]


def check_machines(scene: Scene, runs: Path, how: str | None = None) -> HostCheck:
    """Ask all hosts and spare hosts.

    Args:
        scene: The stages.
        runs: Folder of all runs.
        how: ``ssh`` or ``local``; None: ssh, unless all hosts are names of this machine.
    """
    placement = scene.recipe.launch.placement
    hosts = [*placement.hosts, *placement.spare_hosts]
    own = all(re.fullmatch(r"localhost|127\..*", host) for host in hosts)
    every = placement.model_copy(update={"hosts": hosts, "spare_hosts": []})
    needs = _needs(scene, every, runs.expanduser().absolute())
    how = how or (LOCAL if own else SSH)
    errors, counted = check_and_count(how, needs, every)
    # A host that did not answer would say the same again for every engine.
    asked = [one for one in _engines(scene, needs.folder) if one.host in counted]
    found = check_engines(placement, how, trains_on_ascend(scene.recipe.launch), asked)
    wrong = [one for one in found if not one.ok]
    absent = [one for one in wrong if not one.is_version and one.name != "python"]
    misfits = [one for one in wrong if one.is_version]
    unasked = [one for one in wrong if one.name == "python"]
    warnings = [*_uncounted(scene, counted), *_told(unasked)]
    return HostCheck([*errors, *_told(absent)], _told(misfits), warnings)


def _told(found: list[Finding]) -> list[str]:
    """One sentence for each engine and what is wrong with it, with the hosts that say so."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for one in found:
        hosts.setdefault((one.program, _problem(one)), []).append(one.host)
    return [f"{program} on {few(names)}: {text}" for (program, text), names in hosts.items()]


def _problem(found: Finding) -> str:
    if found.is_version:
        return f"{found.name} is {found.found}, expected {found.wanted}. {found.advice}"
    if found.name == "answer":
        return f"its environment does not answer: {found.advice}"
    unasked = "; its versions were not asked" if found.name == "python" else ""
    return f"{found.found}, expected {found.wanted}{unasked}. {found.advice}"


def uses_hosts(scene: Scene) -> bool:
    """Whether a stage that will run starts processes on the launch file's hosts."""
    nodes = [node for node in scene.nodes.values() if scene.runs(node)]
    if any(node.config.runs_on_hosts for node in nodes):
        return True
    return any(ask.placement.serving_of(ask.needs.kind) for ask in scene.asks())


def _needs(scene: Scene, placement: Placement, runs: Path) -> Needs:
    trained = [node for node in scene.nodes.values() if scene.runs(node) and _trains(node)]
    folder = runs / scene.recipe.name
    checkpoints = [_checkpoint_bytes(scene, node, folder) for node in trained]
    return Needs(
        folder=folder,
        files=(),
        bytes=max(checkpoints, default=0),
        cache=folder,
        ports=_ports(scene),
        trains=bool(trained),
        seconds=SECONDS,
    )


def _trains(node: Node) -> bool:
    return training_of(node.config) is not None


def _ports(scene: Scene) -> dict[str, dict[int, str]]:
    """The ports of the servers that stages start on hosts; those started by hand may run now."""
    found: dict[str, dict[int, str]] = {}
    for ask in scene.asks():
        kind, serving = ask.needs.kind, ask.placement.serving_of(ask.needs.kind)
        # On this machine a stage takes free ports, unless one is given.
        if serving is None or (len(ask.node.placement.hosts) == 1 and serving.port is None):
            continue
        first = ask.placement.first_port(kind)
        for host in ask.placement.hosts:
            for port in range(first, first + serving.servers):
                found.setdefault(host, {})[port] = f"placement.{kind}.port"
    return found


def _engines(scene: Scene, folder: Path) -> Iterator[Engine]:
    """The programs that the stages need on each host, with the folders that they read there.

    A program in a container must see the folder of the runs, too: its checkpoints and the models
    that stages export are there.
    """
    placement = scene.recipe.launch.placement
    programs = dict(programs_of(placement))
    found: dict[tuple[str, str], dict[str, None]] = {}
    for node in scene.nodes.values():
        if scene.runs(node) and _trains(node):
            hosts = [*node.config.trains_on(placement).hosts, *placement.spare_hosts]
            for host in hosts:
                found.setdefault((host, "training"), {}).update(_weights(node.first("policy")))
    for ask in scene.asks():
        kind, hosts = ask.needs.kind, ask.placement.hosts
        for host in hosts if kind in programs else ():
            weights = _weights(ask.node.first(ask.needs.role))
            found.setdefault((host, kind), {}).update(weights)
    for (host, name), folders in found.items():
        runs = [str(folder)] if programs[name].container else []
        yield Engine(host, name, programs[name], [*folders, *runs])


def _weights(given: Given | None) -> dict[str, None]:
    """The folder of weights that are there before the run; a stage's output is in the runs."""
    source = given.source if given and given.node is None else None
    return {str(path_of(source)): None} if source and source.path else {}


def _checkpoint_bytes(scene: Scene, node: Node, folder: Path) -> int:
    """Bytes of the checkpoints that a training will add; of a stage `rl`, those of one."""
    config = training_of(node.config)
    assert config is not None
    model = model_of(scene, node, "policy")
    weights = weights_of(config.model) if config.model else model and model.weights
    kept = config.most_checkpoints(None) if config is node.config else 1
    saved = sum(map(saved_bytes, folder.glob(f"{node.name}-*.partial")))
    return max(0, int(_TRAINED_BYTES * weights) * kept - saved) if weights else 0


def _uncounted(scene: Scene, counted: dict[str, int | None]) -> Iterator[str]:
    """Say on which hosts the devices of a training on Ascend could not be counted."""
    nodes = [node for node in scene.nodes.values() if scene.runs(node)]
    if any(_trains(node) and trains_on_device(node) == "Ascend" for node in nodes):
        for host, devices in counted.items():
            if devices is None:
                yield f"{host}: npu-smi is not there or prints no number: devices were not counted."
