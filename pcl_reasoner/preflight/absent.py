"""Rules: is what a recipe's sources name on this machine?"""

from __future__ import annotations

from collections.abc import Iterator

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.runner.sources import files_of, missing, path_of
from pcl_reasoner.scene.graph import Given, Node, Scene
from pcl_reasoner.scene.rule import Found


def sources_elsewhere(scene: Scene) -> Iterator[Found]:
    """A file or folder that a source names is not on this machine: `run` refuses it there."""
    if scene.to_run is not None:  # a run and a dry run say it of each source
        return
    absent = list(_absent(scene))
    if absent:
        told = {f"{one.name} ({_shown(one)})": None for _, one in absent}
        names = [one.name for _, one in absent]
        yield Found(
            tuple(node for node, _ in absent),
            f"not on this machine: source {', '.join(told)}. A run refuses what its own machine "
            f"lacks: put the files there, or give other paths, e.g. sources.{names[0]}.path=PATH.",
        )


def absent_sources(scene: Scene) -> Iterator[Found]:
    """A file or folder that a source names is not on the machine of the run."""
    for _, given in _absent(scene):
        assert given.source
        # Of finished stages, too: their fingerprint is that of their sources.
        yield Found((), missing(given.name, given.source))


def _absent(scene: Scene) -> Iterator[tuple[Node, Given]]:
    """The stages that read a path without files, and the source that names it."""
    for node in scene.nodes.values():
        for given in (one for some in node.inputs.values() for one in some):
            if given.source and given.source.path and not given.node and not _is_there(given):
                yield node, given


def _is_there(given: Given) -> bool:
    assert given.source
    try:
        return bool(files_of(path_of(given.source), given.source.files))
    except InputError:  # it is there, and making the plan tells what is wrong with it
        return True


def _shown(given: Given) -> str:
    assert given.source
    pattern = f" with files {given.source.files!r}" if given.source.files else ""
    return f"{given.source.path}{pattern}"
