"""Asks the launch file's hosts, all at once, whether they can do what the stages need of them.

node03: it does not answer: is it up, and is the link?
node05: mindspore is 2.7.1, here 2.7.2: install the same on all hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.hosts.checks import Needs, check_and_count
from pcl_reasoner.preflight.model_facts import model_of, weights_of
from pcl_reasoner.preflight.reading import trains_on_device
from pcl_reasoner.preflight.scene import Node, Scene
from pcl_reasoner.supervise.connection import LOCAL, SSH
from pcl_reasoner.train.shape import training_of

SECONDS = 30.0
"""Seconds that each host has to answer, besides ``ssh.connect_seconds``; all are asked at once."""
_TRAINED_BYTES = 12
"""Bytes of a checkpoint per weight: the weight and AdamW's two moments in float32."""


def check_machines(scene: Scene, runs: Path, how: str | None = None) -> tuple[list[str], list[str]]:
    """Ask all hosts and spare hosts.

    Args:
        scene: The stages.
        runs: Folder of all runs.
        how: ``ssh`` or ``local``; None: ssh, unless all hosts are names of this machine.

    Returns:
        Errors and warnings, a sentence each.
    """
    placement = scene.recipe.launch.placement
    hosts = [*placement.hosts, *placement.spare_hosts]
    own = all(re.fullmatch(r"localhost|127\..*", host) for host in hosts)
    every = placement.model_copy(update={"hosts": hosts, "spare_hosts": []})
    needs = _needs(scene, every, runs.expanduser().absolute())
    errors, counted = check_and_count(how or (LOCAL if own else SSH), needs, every)
    return errors, list(_uncounted(scene, counted))


def uses_hosts(scene: Scene) -> bool:
    """Whether a stage that will run starts processes on the launch file's hosts."""
    nodes = [node for node in scene.nodes.values() if scene.runs(node)]
    return any(node.config.runs_on_hosts for node in nodes) or bool(_programs(scene))


def _needs(scene: Scene, placement: Placement, runs: Path) -> Needs:
    trained = [node for node in scene.nodes.values() if scene.runs(node) and _trains(node)]
    programs = _programs(scene)
    paths = {}
    for host in placement.hosts:
        set_env = placement.settings_of(host).set_env or placement.set_env
        paths[host] = [*programs, *([set_env] if set_env else [])]
    folder = runs / scene.recipe.name
    checkpoints = [_checkpoint_bytes(scene, node) for node in trained]
    return Needs(
        folder=folder,
        files=(),
        bytes=max(checkpoints, default=0),
        cache=folder,
        paths=paths,
        trains=bool(trained),
        seconds=SECONDS,
    )


def _trains(node: Node) -> bool:
    return training_of(node.config) is not None


def _programs(scene: Scene) -> list[str]:
    """The programs that start servers on the hosts."""
    found = [ask.placement.serving_of(ask.needs.kind) for ask in scene.asks()]
    return list(dict.fromkeys(one.executable for one in found if one))


def _checkpoint_bytes(scene: Scene, node: Node) -> int:
    config = training_of(node.config)
    if config and config.model:
        return int(_TRAINED_BYTES * weights_of(config.model))
    model = model_of(scene, node, "policy")
    return int(_TRAINED_BYTES * model.weights) if model and model.weights else 0


def _uncounted(scene: Scene, counted: dict[str, int | None]) -> Iterator[str]:
    """Say on which hosts the devices of a training on Ascend could not be counted."""
    nodes = [node for node in scene.nodes.values() if scene.runs(node)]
    if any(_trains(node) and trains_on_device(node) == "Ascend" for node in nodes):
        for host, devices in counted.items():
            if devices is None:
                yield f"{host}: npu-smi is not there or prints no number: devices were not counted."
