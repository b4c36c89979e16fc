"""Rules: can the launch file's machines, and this one, do what the stages ask of them?"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from pcl_reasoner.core.api_keys import missing_keys, without_slash
from pcl_reasoner.preflight.reading import trains_on_device
from pcl_reasoner.scene.graph import Node, Scene
from pcl_reasoner.scene.model_facts import model_of
from pcl_reasoner.scene.rule import Found
from pcl_reasoner.supervise.connection import LOCAL, SSH

_LOOPBACK = re.compile(r"localhost|127\..*")
_BYTES = {"GB": 2**30, "MB": 2**20}
"""Units of ``max_device_memory``; MindSpore takes GB as 2^30 bytes."""


def one_host_twice(scene: Scene) -> Iterator[Found]:
    """Two hosts have one name but for capital letters, which names of machines do not have."""
    placement = scene.recipe.launch.placement
    first: dict[str, str] = {}
    for host in [*placement.hosts, *placement.spare_hosts]:
        other = first.setdefault(host.lower().rstrip("."), host)
        if other != host:
            yield Found(
                (),
                f"placement.hosts: {other} and {host} are one host, because capital letters do not "
                "count in names of machines. Name every host once.",
            )


def loopback_among_hosts(scene: Scene) -> Iterator[Found]:
    """One of several hosts is ``localhost``, which means another machine on each of them."""
    hosts = scene.recipe.launch.placement.hosts
    own = [host for host in hosts if _LOOPBACK.fullmatch(host)]
    if own and len(own) < len(hosts):
        yield Found(
            (),
            f"placement.hosts: {', '.join(own)} stands among {len(hosts)} hosts, and on each of "
            "them it means that host itself: the others could not reach the scheduler. Write the "
            "name or address by which the other hosts know it.",
        )


def model_too_large_for_its_devices(scene: Scene) -> Iterator[Found]:
    """The weights alone do not fit the devices of a forward pass, e.g. 32B on one device."""
    for node in scene.of_type("old_log_probs", "perplexity"):
        if trains_on_device(node) != "Ascend":
            continue
        model, limit = model_of(scene, node, "policy"), _limit(node)
        if model is None or not model.weights or limit is None:
            continue
        ranks = node.config.model_parallel
        held = 4 * model.weights / ranks
        if held > limit:
            most = node.placement.devices_per_host
            fits = [n for n in range(ranks + 1, most + 1) if _divides(n, model.heads)]
            enough = [n for n in fits if 4 * model.weights / n <= limit]
            advice = (
                f"Set {node.name}.model_parallel={enough[0]}; all its ranks are on one host."
                if enough
                else f"Its ranks are on one host, with {most} devices: use a host with more."
            )
            yield Found(
                (node,),
                f"stage {node.title}: the weights of its policy take {held / 2**30:.0f} GiB on a "
                f"device ({model.weights / 1e9:.1f} billion in float32, "
                f"{node.told('model_parallel')} {ranks}), and max_device_memory is "
                f"{node.config.max_device_memory}. {advice}",
            )


def _divides(ranks: int, heads: int | None) -> bool:
    return ranks & (ranks - 1) == 0 and (heads is None or heads % ranks == 0)


def _limit(node: Node) -> float | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(GB|MB)", node.config.max_device_memory)
    return float(found[1]) * _BYTES[found[2]] if found else None


def no_npu_here(scene: Scene) -> Iterator[Found]:
    """A stage computes on Ascend devices of this machine, and there are none."""
    nodes = _without_npu(scene, (node for node in scene.nodes.values() if scene.runs(node)))
    if nodes:
        ends = f" --until {_before(scene, nodes[0])} ends before it."
        yield Found(tuple(nodes), f"{_no_npu(nodes)} {_npu_advice(scene, nodes)}{ends}")


def no_npu_later(scene: Scene) -> Iterator[Found]:
    """A stage after `--until` will compute on Ascend devices of this machine; there are none."""
    if nodes := _without_npu(scene, scene.later):
        told = _no_npu(nodes, ", after this run")
        yield Found((), f"{told} {_npu_advice(scene, nodes)}")


def _without_npu(scene: Scene, nodes: Iterable[Node]) -> list[Node]:
    """Return those of some stages that compute on an NPU of this machine, which has none."""
    found = [one for one in nodes if trains_on_device(one) == "Ascend" and _is_here(scene, one)]
    return [] if found and _has_npu() else found


def _no_npu(nodes: list[Node], when: str = "") -> str:
    titles = " and ".join(node.title for node in nodes)
    return (
        f"{titles}{when}: device is Ascend, and this machine has no NPU (no /dev/davinci*, no "
        "npu-smi)."
    )


def _npu_advice(scene: Scene, nodes: list[Node]) -> str:
    first = nodes[0].placement.hosts[0]
    advice = (
        "Start the run on an Ascend host, name the hosts in the launch file and give --start ssh, "
        if _LOOPBACK.fullmatch(first)
        else "Give --start ssh, with which training runs on the launch file's hosts and a forward "
        f"pass on {first}, the first of them; start the run on an Ascend host; "
    )
    told = f"{advice}or take a launch file for a CPU, e.g. --launch laptop."
    by_hand = next((node for node in nodes if node.type == "prove" and _asks_by_hand(node)), None)
    if by_hand:
        told += (
            f" The servers of {by_hand.name} are started by hand, and would hold the devices of "
            f"its forward pass. So first give this command with --until {by_hand.name} in an "
            "allocation of one node, or with --start ssh to a node of an allocation: it keeps the "
            "pass in runs/.cache/proofs, and ends because no server answers. Then start the "
            "servers, and give it there again."
        )
    return told


def _asks_by_hand(node: Node) -> bool:
    asked = [node.placement.described(needs.kind) for needs in node.config.servers(node.inputs)]
    return any(serving and serving.by_hand for serving in asked)


def _has_npu() -> bool:
    return bool(list(Path("/dev").glob("davinci*"))) or shutil.which("npu-smi") is not None


def _is_here(scene: Scene, node: Node) -> bool:
    """Whether a stage's processes run on this machine.

    With ``--start ssh`` they run on the launch file's hosts: a training on all, a forward pass on
    the first. Without ``--start``, nothing is started for a training on several hosts.
    """
    hosts = node.placement.hosts
    if scene.start == SSH:
        return len(hosts) == 1 and bool(_LOOPBACK.fullmatch(hosts[0]))
    return scene.start == LOCAL or len(hosts) == 1 or not node.config.runs_on_hosts


def _before(scene: Scene, node: Node) -> str:
    names = [one.name for one in scene.nodes.values() if one.recipe is node.recipe]
    place = names.index(node.name)
    return names[place - 1] if place else "STAGE"


def nobody_starts_the_hosts(scene: Scene) -> Iterator[Found]:
    """A stage ``rl`` trains on several hosts, and ``--start ssh`` is not given."""
    for node in scene.nodes.values():
        waits = node.config.waits_for_runner and scene.start is None
        if waits and len(node.config.trains_on(node.placement).hosts) > 1:
            yield Found(
                (node,),
                f"stage {node.title}: trains on several hosts, whose processes wait for the rounds "
                "that this process makes. Give --start ssh.",
            )


def keys_that_are_not_set(scene: Scene) -> Iterator[Found]:
    """A server needs an API key whose environment variable is not set."""
    for node in scene.nodes.values():
        if not scene.runs(node):
            continue
        asked = node.config.request_urls(node.placement, node.inputs)
        urls = [without_slash(url) for url in asked]
        keys = node.placement.api_keys.items()
        for text in missing_keys({u: v for u, v in keys if without_slash(u) in urls}):
            yield Found((node,), text)
