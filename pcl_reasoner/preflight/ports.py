"""Rules: does everything that listens on a host have a port of its own?

node01:8118  placement.master_port (msrun's scheduler) and placement.judging (its server 19)
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import SERVERS
from pcl_reasoner.hosts.commands import ray_address
from pcl_reasoner.preflight.reading import trains_on_device
from pcl_reasoner.preflight.running import key_of
from pcl_reasoner.scene.graph import Ask, Node, Scene
from pcl_reasoner.scene.rule import Found

_SCHEDULER = "placement.master_port (msrun's scheduler)"
_RAY = "placement.data.address (Ray)"

Listener = tuple[str, str, int, Node]
"""(key of the launch file, host, port, a stage that needs it)."""


def port_taken_twice(scene: Scene) -> Iterator[Found]:
    """Two of msrun's scheduler, Ray and the servers of the launch file would have one port."""
    first: dict[tuple[str, int], tuple[str, Node]] = {}
    told: set[tuple[str, str]] = set()
    for key, host, port, node in _listeners(scene):
        other, owner = first.setdefault((host, port), (key, node))
        # Two keys may name one running server, which serves both under their own names.
        both_urls = other.endswith("_urls") and key.endswith("_urls")
        if other == key or both_urls or (other, key) in told:
            continue
        told.add((other, key))
        yield Found(
            (owner, node),
            f"{host}:{port} is the port of {other} and of {key}. Choose another port for one of "
            f"them{_where(other, key)}.",
        )


def _where(*keys: str) -> str:
    """Name the keys that set the ports of servers that this package describes."""
    names = [f"{key}.port" for key in keys if key.removeprefix("placement.") in SERVERS]
    return f", e.g. {names[0]}" if names else ""


def _listeners(scene: Scene) -> Iterator[Listener]:
    for node in scene.nodes.values():
        if not scene.runs(node):
            continue
        if node.config.runs_on_hosts and trains_on_device(node):
            training = node.config.trains_on(node.placement)
            if len(training.hosts) * training.devices_per_host > 1:
                yield _SCHEDULER, training.hosts[0], training.master_port, node
        yield from _ray(node)
    for ask in scene.asks():
        yield from _servers(ask)


def _servers(ask: Ask) -> Iterator[Listener]:
    kind, placement = ask.needs.kind, ask.placement
    serving, key = placement.described(kind), key_of(placement, kind)
    if serving is None:
        for url in placement.urls_of(kind):
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            yield key, parts.hostname or "", port, ask.node
        return
    if len(ask.node.placement.hosts) == 1 and serving.port is None and not serving.by_hand:
        return  # free ports are taken
    first = placement.first_port(kind)
    for host in placement.hosts:
        for port in range(first, first + serving.servers):
            yield key, host, port, ask.node


def _ray(node: Node) -> Iterator[Listener]:
    placement: Placement = node.placement
    if placement.data.engine != "ray" or not placement.data.address:
        return
    head, *ports = ray_address(placement)
    for port in ports:
        if isinstance(port, int):
            yield _RAY, head, port, node
