"""Rules: values that their fields allow, and with which no run ends well: units, typos, rates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pcl_reasoner.budget.served_model import hub_facts
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.estimate.data_size import data_size
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.preflight.reading import trains_on_device
from pcl_reasoner.scene.graph import Node, Scene
from pcl_reasoner.scene.rule import Found
from pcl_reasoner.train.shape import training_of

_OF_DUCKDB = re.compile(r"[1-9]\d*(\.\d+)?\s*([kmgt](i?b)?|%)|0\.\d+\s*[gt](i?b)?", re.IGNORECASE)
_OF_MINDSPORE = re.compile(r"[1-9]\d*\.?\d*GB|0\.\d*GB")
"""Source: MindSpore 2.7.2, mindspore/context.py, _RE_PATTERN."""
# fmt: off
_SECTIONS = (
    "parallel_config", "recompute_config", "swap_config", "moe_config", "runner_config",
    "parallel", "context", "train_dataset", "train_dataset_task", "processor", "eval_dataset",
    "eval_dataset_task", "trainer", "model", "runner_wrapper", "optimizer", "lr_schedule",
    "metric", "callbacks", "monitor_config", "eval_callbacks",
)
# fmt: on
"""Source: MindFormers 1.8.0, mindformers/tools/register/template.py, CONFIG_NAME_TO_CLASS."""
_KEYS_OF_SHAPE = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_heads": "heads",
    "n_kv_heads": "key_heads",
    "intermediate_size": "feed_forward",
    "vocab_size": "vocabulary",
}
"""Key of ``model`` -> key of the same in hub.yaml."""
_FEW_SECONDS = {"stall_seconds": 300, "cluster_time_out": 60}
"""Key of the placement -> fewest seconds within which a large model does its next step."""
_FEW_TO_START = 60
"""Fewest seconds in which a server can have loaded the weights of a large model."""

_FASTEST_TOKEN = 0.02
"""Seconds per token of a response: our choice, less than any device takes for a large model that
answers many requests."""


def amounts_of_memory(scene: Scene) -> Iterator[Found]:
    """An amount of memory has another form than DuckDB or MindSpore reads."""
    for recipe in {id(node.recipe): node.recipe for node in scene.nodes.values()}.values():
        memory = recipe.launch.placement.duckdb_memory
        if not _OF_DUCKDB.fullmatch(memory):
            yield Found(
                (),
                f"placement.duckdb_memory: expected a number and a unit such as 64GB or 512MB, "
                f"got {memory!r}.",
            )
    for node in scene.nodes.values():
        config = training_of(node.config) or node.config
        limit = getattr(config, "max_device_memory", None)
        if limit is not None and not _OF_MINDSPORE.fullmatch(limit):
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('max_device_memory')} must have the unit GB "
                f"directly after the number, as MindSpore reads it, e.g. 58GB, got {limit!r}.",
            )


def rates_out_of_range(scene: Scene) -> Iterator[Found]:
    """A learning rate or AdamW's betas are in another range than a training can use."""
    for node in scene.of_type("train", "rl"):
        config = node.config
        if config.learning_rate >= 1:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('learning_rate')} must be less than 1, e.g. "
                f"1.0e-6, got {config.learning_rate:g}.",
            )
        if config.learning_rate_end > config.learning_rate:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('learning_rate_end')} is "
                f"{config.learning_rate_end:g}, and {node.told('learning_rate')}, the highest "
                f"rate, is {config.learning_rate:g}. Lower {node.name}.learning_rate_end.",
            )
        if not all(0 <= beta < 1 for beta in config.betas):
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('betas')} must be two numbers from 0 to less "
                f"than 1, e.g. [0.9, 0.95], got {list(config.betas)}.",
            )


def shape_of_another_model(scene: Scene) -> Iterator[Found]:
    """The recipe's ``model`` has another shape than the repository whose weights are trained."""
    for node in scene.of_type("train", "rl"):
        given, shape = node.first("policy"), node.config.model
        source = given.source if given and given.node is None else None
        block = hub_facts("models").get(str(source.hub)) if source else None
        if shape is None or source is None or block is None:
            continue
        different = [
            f"{key} is {getattr(shape, key)}, expected {block[name]}"
            for key, name in _KEYS_OF_SHAPE.items()
            if name in block and getattr(shape, key) != block[name]
        ]
        if different:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('model')} is not the shape of {source.hub}: "
                f"{'; '.join(different)}. Correct {node.name}.model, or name other weights.",
            )


def few_seconds(scene: Scene) -> Iterator[Found]:
    """A limit of seconds is so short that a large model on Ascend would not keep it."""
    for node in scene.nodes.values():
        if training_of(node.config) is None or trains_on_device(node) != "Ascend":
            continue
        for key, few in _FEW_SECONDS.items():
            seconds = getattr(node.placement, key)
            if seconds < few:
                yield Found(
                    (node,),
                    f"placement.{key}: is {seconds:g} seconds; with fewer than {few}, a training "
                    "on many devices may be ended while it works. Is another unit meant?",
                )
    for ask in scene.asks():
        serving = ask.placement.serving_of(ask.needs.kind)
        if serving and serving.start_seconds < _FEW_TO_START and not scene.on_cpu():
            yield Found(
                (ask.node,),
                f"placement.{ask.needs.kind}.start_seconds: is {serving.start_seconds:g} seconds; "
                f"with fewer than {_FEW_TO_START}, a server may be ended while it loads its "
                "weights. Is another unit meant?",
            )


def short_request_timeout(scene: Scene) -> Iterator[Found]:
    """A request may not take as long as its longest response does, which then always fails."""
    for node in scene.nodes.values():
        config = node.config
        if not isinstance(config, SamplingConfig) or config.engine != "server":
            continue
        given, longest = config.request_timeout, config.max_new_tokens or config.max_model_len
        fewest = math.ceil(longest * _FASTEST_TOKEN)
        if given is not None and given < fewest:
            free = config.model_copy(update={"request_timeout": None}).answer_seconds()
            yield Found(
                (node,),
                f"stage {node.title}: {node.told('request_timeout')} is {given:g} seconds, and a "
                f"response of {longest:,} tokens takes at least {fewest:,} at {_FASTEST_TOKEN:g} s "
                "per token, so long responses would always fail. Leave it out, then it is "
                f"{free:,.0f}, or set it to more than the slowest response takes.",
            )


def one_checkpoint(scene: Scene) -> Iterator[Found]:
    """A training on Ascend writes its only checkpoint at the end, so a killed one starts again."""
    for node in scene.of_type("train", "rl"):
        if trains_on_device(node) != "Ascend":
            continue
        key = "checkpoint_steps" if node.type == "train" else "checkpoint_rounds"
        every, (steps, told) = getattr(node.config, key), _steps(node)
        if steps and every >= steps:
            yield Found(
                (node,),
                f"stage {node.title}: {node.told(key)} is {every:,}, and the training has {told}: "
                "its only checkpoint comes at the end, and a training that is killed before it "
                f"starts again. Lower {node.name}.{key}, e.g. to {max(1, steps // 10):,}.",
            )


def _steps(node: Node) -> tuple[int, str]:
    """(steps, what they are): of a stage ``train`` as `pclr-ms plan` has them; 0 if not known."""
    if node.type == "rl":
        return node.config.max_rounds, f"{node.config.max_rounds:,} rounds at most (max_rounds)"
    try:
        steps = data_size(node).steps
    except InputError:  # nothing is published of its rows
        steps = node.config.max_steps or 0
    return steps, f"{steps:,} steps (pclr-ms plan)"


def unknown_sections(scene: Scene) -> Iterator[Found]:
    """A section under ``mindformers`` is none of MindFormers', which would ignore it."""
    for node in scene.of_type("train"):
        for key, value in node.config.mindformers.items():
            if isinstance(value, dict) and key not in _SECTIONS:
                yield Found(
                    (node,),
                    f"stage {node.title}: mindformers.{key} is no section of MindFormers' "
                    f"configuration, which ignores it.{nearest(key, _SECTIONS)}",
                )


def results_of_no_stage(scene: Scene) -> Iterator[Found]:
    """A published result belongs to no stage, so the report compares nothing with it."""
    recipe = scene.recipe
    for name in () if scene.until else recipe.expect:
        if name not in recipe.stages:
            hint = nearest(name, list(recipe.stages))
            yield Found((), f"{recipe.path}: expect.{name}: there is no such stage.{hint}")


def evaluated_twice(scene: Scene) -> Iterator[Found]:
    """Two evaluations ask one model the same: an "after" that scores the model of "before"."""
    first: dict[tuple[str, ...], Node] = {}
    for node in scene.of_type("evaluate"):
        if node.recipe is not scene.recipe or "model" not in node.inputs:
            continue
        names = tuple(one.name for one in node.inputs.get("benchmark", []))
        given = node.first("model")
        assert given
        other = first.setdefault((given.name, *names, node.config.model_dump_json()), node)
        if other is not node:
            yield Found(
                (other, node),
                f"stages {other.title} and {node.title}: both ask {given.name} for "
                f"{', '.join(names)} with the same settings: their scores say nothing of a "
                f"training between them. Give one of them another input model, or remove it.",
            )
