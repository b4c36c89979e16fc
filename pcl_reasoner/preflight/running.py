"""Rules: the servers that run already, at the URLs of the launch file or started by hand."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from pcl_reasoner.core.api_keys import without_slash
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import SERVERS, ServerKind
from pcl_reasoner.preflight.reading import trains_on_device
from pcl_reasoner.scene.graph import Ask, Node, Scene
from pcl_reasoner.scene.rule import Found

_PAGES = ("completions", "models", "classify", "tokenize", "responses")
"""Last parts of addresses of single pages, which are no base URLs."""


def key_of(placement: Placement, kind: ServerKind) -> str:
    """Return the key of the launch file that names a kind of servers."""
    return f"placement.{kind if placement.described(kind) else SERVERS[kind].urls}"


def urls_on_hosts_that_train(scene: Scene) -> Iterator[Found]:
    """A running server's URL is on a host that trains: its devices must be others, or be freed."""
    for kind in SERVERS:
        hosts: dict[str, list[str]] = {}
        trainings: list[Node] = []
        for node in scene.nodes.values():
            trains = trains_on_device(node) == "Ascend" and node.type == "train"
            if trains and scene.runs(node):
                trainings.append(node)
                there = node.config.trains_on(node.placement).hosts
                for url in node.placement.urls_of(kind):
                    host = urlsplit(url).hostname or ""
                    if host in there and url not in hosts.setdefault(host, []):
                        hosts[host].append(url)
        found = [url for urls in hosts.values() for url in urls]
        if found:
            names = ", ".join(dict.fromkeys(node.name for node in trainings))
            placement = trainings[0].placement
            yield Found(
                tuple(trainings),
                f"{key_of(placement, kind)}: {few(found)} {'is' if len(found) == 1 else 'are'} on "
                f"hosts that train ({names}). If a server holds devices of the training, stop it "
                "before that stage (run --until STAGE ends a run there), or have the stages start "
                f"and stop their servers: {_started(placement, kind)}.",
            )


def several_models_at_one_url(scene: Scene) -> Iterator[Found]:
    """The same running servers are asked for several models, one after the other."""
    for kind in SERVERS:
        models: dict[str, list[Node]] = {}
        for ask in scene.asks():
            if ask.needs.kind == kind and ask.placement.serving_of(kind) is None:
                given = ask.node.first(ask.needs.role)
                weights = f" with the weights of {given.name}" if given else ""
                models.setdefault(f"{ask.needs.name!r}{weights}", []).append(ask.node)
        if len(models) > 1:
            told = "; ".join(
                f"{', '.join(node.name for node in nodes)}: {model}"
                for model, nodes in models.items()
            )
            asking = [node for nodes in models.values() for node in nodes]
            placement = asking[0].placement
            yield Found(
                tuple(asking),
                f"{key_of(placement, kind)}: several models are asked of the same servers "
                f"({told}). "
                "Exchange the servers between these stages (run --until STAGE ends a run there), "
                f"or have the stages start them: {_started(placement, kind)}.",
            )


def one_url_of_two_kinds(scene: Scene) -> Iterator[Found]:
    """One URL is named for two kinds of models under the same model name."""
    names: dict[str, dict[ServerKind, Ask]] = {}
    for ask in scene.asks():
        for url in ask.placement.urls_of(ask.needs.kind):
            names.setdefault(f"{without_slash(url)} {ask.needs.name}", {})[ask.needs.kind] = ask
    for where, asks in names.items():
        if len(asks) > 1:
            url, name = where.split(" ", 1)
            keys = " and ".join(key_of(ask.placement, kind) for kind, ask in asks.items())
            yield Found(
                tuple(ask.node for ask in asks.values()),
                f"{url} is in {keys}, and both ask it for the model {name!r}: one of them would "
                "get the other's answers. Serve them under two names or at two URLs.",
            )


def base_url(scene: Scene) -> Iterator[Found]:
    """A URL is not the base URL of a server: it has no path such as /v1, or it is a page's."""
    told: dict[str, list[Node]] = {}
    for ask in scene.asks():
        placement, kind = ask.placement, ask.needs.kind
        if placement.described(kind):
            continue
        for url in placement.urls_of(kind):
            parts = [part for part in urlsplit(url).path.split("/") if part]
            if parts and parts[-1] not in _PAGES:
                continue
            wrong = f"ends with the page {parts[-1]}" if parts else "has no path"
            root = "/".join(url.split("/")[:3])
            told.setdefault(
                f"{key_of(placement, kind)}: {url} {wrong}, and requests would go to "
                f"{without_slash(url)}/models and other pages below it. Write the base URL of the "
                f"server, e.g. {root}/v1.",
                [],
            ).append(ask.node)
    for text, nodes in told.items():
        yield Found(tuple(nodes), text)


def _started(placement: Placement, kind: ServerKind) -> str:
    """What to write so that stages start the servers of a kind themselves."""
    if placement.described(kind):
        return f"remove {key_of(placement, kind)}.by_hand"
    startable = kind if SERVERS[kind].can_start else "sampling"
    return f"placement: {{{startable}: {{executable: /path/to/vllm}}}}"


def few(names: list[str]) -> str:
    """Return the first two names, and how many more there are."""
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
