"""What the rules know of a model: from its config.json, from the recipe, or from hub.yaml.

Qwen/Qwen2.5-32B-Instruct: 40 heads, a context of 32,768 tokens, 32.8e9 weights
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pcl_reasoner.budget.served_model import hub_facts, hub_model, model_of_config
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import expanded
from pcl_reasoner.core.schema import Source
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.estimate.served_shape import ServedModel, dense_model
from pcl_reasoner.prompt.model_files import read_json
from pcl_reasoner.scene.graph import Given, Node, Scene
from pcl_reasoner.train.shape import training_of
from pcl_reasoner.weights.model_config import ModelShape

_CONTEXTS = Path(__file__).with_name("contexts.yaml")
_NOT_SCALED = ("default", "llama3", "longrope", "su", "mrope")
"""Types of ``rope_scaling`` for which vLLM takes max_position_embeddings as it is.

Source: vLLM, vllm/config/model.py, _get_and_verify_max_len."""


@dataclass(frozen=True)
class ModelFacts:
    """A model; what is not known is None.

    Args:
        title: What it is, and where that is written.
        heads: Attention heads.
        context: Longest sequence, in tokens.
        weights: Number of weights.
        shape: Its shape as servers need it.
    """

    title: str
    heads: int | None = None
    context: int | None = None
    weights: float | None = None
    shape: ServedModel | None = None


def model_of(scene: Scene, node: Node, role: str) -> ModelFacts | None:
    """Return the model that a stage reads in a role; None if nothing is known of it."""
    given = node.first(role)
    return _model(scene, given, 0) if given else None


def _model(scene: Scene, given: Given, depth: int) -> ModelFacts | None:
    """As `model_of`; ``depth`` ends the search in recipes that read one another."""
    source, node = given.source, given.node
    if node is not None and node.type == "export" and given.whole and depth <= len(scene.nodes):
        return _exported(scene, node, depth)
    if source is None:
        return None
    here = None if node else _in_folder(source)
    return here or _trained_from(scene, given.name, source) or _on_hub(source)


def _exported(scene: Scene, export: Node, depth: int) -> ModelFacts | None:
    """Return the model that a stage ``export`` writes: it has the shape of the trained one."""
    made = export.stage("checkpoint")
    config = training_of(made.config) if made else None
    if made and config and config.model:
        return _of_shape(config.model, f"{made.name}.model")
    policy = export.first("policy")
    return _model(scene, policy, depth + 1) if policy else None


def _trained_from(scene: Scene, name: str, source: Source) -> ModelFacts | None:
    """Return the shape that a training of this recipe expects of a source's weights."""
    for node in scene.of_type("train", "rl"):
        policy, config = node.first("policy"), training_of(node.config)
        if policy and config and config.model and (policy.name, policy.source) == (name, source):
            return _of_shape(config.model, f"{node.name}.model")
    return None


def _of_shape(shape: ModelShape, title: str) -> ModelFacts:
    context, served = shape.max_position_embedding, _served(shape, title)
    return ModelFacts(title, shape.num_heads, context, weights_of(shape), served)


def weights_of(shape: ModelShape) -> float:
    """Return the number of weights of a Qwen2 model, without its biases and norms."""
    model = _served(shape, "")
    return model.stored - (model.embedding if shape.tie_word_embeddings else 0)


def _served(shape: ModelShape, title: str) -> ServedModel:
    return dense_model(
        title,
        layers=shape.num_layers,
        hidden=shape.hidden_size,
        heads=shape.num_heads,
        key_heads=shape.n_kv_heads,
        feed_forward=shape.intermediate_size,
        vocabulary=shape.vocab_size,
    )


def _in_folder(source: Source) -> ModelFacts | None:
    """Read a model's config.json; a file that cannot be read is the error of another check."""
    if not source.path:
        return None
    file = expanded(source.path) / "config.json"
    try:
        value = read_json(file)
    except StageError:
        return None
    heads = value.get("num_attention_heads")
    if not isinstance(heads, int):
        return None
    shape = model_of_config(value, str(file))
    return ModelFacts(str(file), heads, _context(value), shape=shape)


def _context(value: dict[str, Any]) -> int | None:
    """Return the longest sequence that vLLM allows a model by its config.json."""
    longest, scaling = value.get("max_position_embeddings"), value.get("rope_scaling")
    if not isinstance(longest, int):
        return None
    if not isinstance(scaling, dict):
        return longest
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if kind in _NOT_SCALED or not isinstance(factor, int | float):
        return longest
    return int(scaling.get("original_max_position_embeddings", longest) * factor)


def _on_hub(source: Source) -> ModelFacts | None:
    name = str(source.hub)
    context = contexts().get(name)
    if name not in hub_facts("models") and context is None:
        return None
    shape = hub_model(source)
    if shape is None:
        return ModelFacts(name, None, context)
    return ModelFacts(name, shape.heads, context, shape.stored, shape)


@cache
def contexts() -> dict[str, int]:
    """Return hub repository -> max_position_embeddings of its config.json."""
    return read_yaml(_CONTEXTS)
