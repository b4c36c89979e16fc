"""The model that servers serve, by the recipe, its config.json, or the table of hub repositories.

hub.yaml    deepseek-ai/DeepSeek-R1: {layers: 61, stored: 671.0e+9, active: 36.6e+9, …}
config.json {"num_hidden_layers": 64, "hidden_size": 5120, …}, where the weights are here
the plan    the trained model, for what a stage exports and for the policy
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schema import Source
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.estimate.served_shape import ServedModel, dense_model, trained_model
from pcl_reasoner.estimate.training_size import Training
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.prompt.model_files import read_json
from pcl_reasoner.runner.finished import PlannedInput
from pcl_reasoner.runner.plan import PlannedStage

FILE = Path(__file__).with_name("hub.yaml")
_PUBLISHED_KEYS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "key_heads": "num_key_value_heads",
    "feed_forward": "intermediate_size",
    "vocabulary": "vocab_size",
}
_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
"""Keys of a config.json of a mixture of experts, whose weights are counted in another way."""


def served_model(
    planned: PlannedStage, role: str, trained: Training, policy: PlannedInput
) -> ServedModel | None:
    """Return the model in a stage's role; None if its shape is not known here.

    Args:
        planned: The stage.
        role: The role of the weights.
        trained: The training of this plan: the shape of what stages export.
        policy: The weights that this training starts from, which have the same shape.
    """
    given = planned.inputs.get(role)
    if given is None:
        return _judge(planned.spec.config) if role == "judge" else None
    if not given.is_source:
        return trained_model(trained)
    source = planned.recipe.sources[given.origin]
    title = source.hub or str(source.path)
    if given.path == policy.path:
        return trained_model(trained, title)
    return model_of_config(read_json(given.path / "config.json"), title) or hub_model(source)


def _judge(config: StageConfig) -> ServedModel | None:
    """Return a judge without weights in the recipe, by its served name: ``Qwen3-32B``."""
    name = config.judge_model if isinstance(config, GradeConfig) else ""
    known = [hub for hub in hub_facts("models") if name in (hub, hub.partition("/")[2])]
    return _known_model(known[0]) if known else None


def hub_model(source: Source) -> ServedModel | None:
    """Return the model of a hub repository that hub.yaml knows."""
    return _known_model(str(source.hub))


def _known_model(title: str) -> ServedModel | None:
    block = hub_facts("models").get(title)
    if block is None:
        return None
    return dense_model(title, **block) if "hidden" in block else ServedModel(title, **block)


@cache
def hub_facts(group: str) -> Mapping[str, Mapping[str, Any]]:
    """Return a group of hub.yaml: ``models``, ``types`` or ``benchmarks``."""
    found: dict[str, dict[str, Any]] = read_yaml(FILE)[group]
    return found


def model_of_config(config: Mapping[str, Any], title: str) -> ServedModel | None:
    """Return the model of a config.json; None if it is empty, or of a model of an unknown kind."""
    value = dict(config)
    if block := hub_facts("types").get(str(value.get("model_type"))):
        return ServedModel(title, **block)
    value.setdefault("num_key_value_heads", value.get("num_attention_heads"))
    head = value.get("head_dim")
    if any(key in value for key in _EXPERTS) or not all(
        isinstance(value.get(key), int) for key in _PUBLISHED_KEYS.values()
    ):
        return None
    shape = {name: value[key] for name, key in _PUBLISHED_KEYS.items()}
    return dense_model(title, **shape, head=head if isinstance(head, int) else None)
