"""Rules: have the devices of a server memory for its model, as `pclr-ms plan` computes it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pcl_reasoner.budget.response_counts import Responses
from pcl_reasoner.budget.serving_report import per_copy, too_large
from pcl_reasoner.budget.serving_size import NOT_ESTIMATED, workload_of
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.serving import Serving
from pcl_reasoner.estimate.chips import Chip, chip_name, read_chip
from pcl_reasoner.estimate.served_shape import ServedModel
from pcl_reasoner.estimate.serving_estimate import Workload
from pcl_reasoner.scene.graph import Ask, Scene
from pcl_reasoner.scene.model_facts import model_of
from pcl_reasoner.scene.rule import Found

_SMALLER = ("--quantization", "-q", "--cpu-offload-gb", "--gpu-memory-utilization")
"""Options of vLLM with which the weights need less of a device, or vLLM takes more of it."""
_MOST = 64
"""Largest number of devices that is proposed for a server."""


def servers_too_small(scene: Scene) -> Iterator[Found]:
    """A server's devices cannot hold the weights of its model and one response."""
    yield from _too_small(scene, has_experts=False)


def experts_too_large(scene: Scene) -> Iterator[Found]:
    """A server's devices cannot hold a model with experts; others may run with this launch file."""
    yield from _too_small(scene, has_experts=True)


def _too_small(scene: Scene, has_experts: bool) -> Iterator[Found]:
    told: set[tuple[int, str, str]] = set()
    for ask in () if scene.on_cpu() else scene.asks():
        serving = ask.placement.described(ask.needs.kind)
        facts, chip = model_of(scene, ask.node, ask.needs.role), _chip(ask)
        shape = facts.shape if facts else None
        if serving is None or shape is None or chip is None or not _is_estimated(ask, serving):
            continue
        if shape.has_experts is not has_experts:
            continue
        key = (id(ask.node.recipe.launch), ask.needs.kind, shape.title)
        work = per_copy(shape, workload_of(ask.node, ask.needs, Responses(ask.node.recipe)))
        problem = too_large(shape, chip, work)
        if not problem or key in told or shape.heads % work.devices:
            continue
        told.add(key)
        devices = f"{work.server_devices} device{'s' if work.server_devices > 1 else ''}"
        yield Found(
            (ask.node,),
            f"stage {ask.node.title}: placement.{ask.needs.kind} describes servers of {devices} "
            f"({chip.title}) for its {ask.needs.role} ({shape.title}), and {problem}. "
            f"{_advice(ask, shape, chip, work)}",
        )


def _is_estimated(ask: Ask, serving: Serving) -> bool:
    words = [word.split("=")[0] for word in serving.arguments]
    return not isinstance(ask.node.config, NOT_ESTIMATED) and not set(words) & set(_SMALLER)


def _chip(ask: Ask) -> Chip | None:
    try:
        return read_chip(chip_name(None, ask.placement))
    except InputError:  # pclr-ms plan tells what is wrong with the file
        return None


def _advice(ask: Ask, shape: ServedModel, chip: Chip, work: Workload) -> str:
    for devices in range(work.devices + 1, _MOST + 1):
        fits = shape.heads % devices == 0
        if fits and not too_large(shape, chip, replace(work, devices=devices)):
            most = ask.placement.devices_per_host // (devices * work.stages * work.copies)
            servers = f", and {ask.needs.kind}.servers to at most {most}" if most else ""
            return f"Set {ask.needs.kind}.devices to {devices} or more{servers}."
    return "Name a smaller model, or divide it into pipeline stages (--pipeline-parallel-size)."
