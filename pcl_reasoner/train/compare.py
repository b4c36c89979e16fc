"""Compares two nested mappings key by key.

{"train": {"learning_rate": 1.0e-6}} against {"train": {"learning_rate": 6.0e-5}}
-> [("train.learning_rate", 1e-06, 6e-05)], and two empty lists: both sides have all keys
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import Recipe


def differences(left: Any, right: Any) -> list[list[tuple[Any, ...]]]:
    """Compare two nested mappings.

    Returns:
        Three lists: (key, left value, right value) where the values differ in meaning; (key, value)
        of keys that only the left side has; (key, value) of keys that only the right side has.
    """
    flat_left, flat_right = flatten(left), flatten(right)
    common = [key for key in flat_left if key in flat_right]
    pairs = [(key, flat_left[key], flat_right[key]) for key in common]
    return [
        [pair for pair in pairs if not _same(*pair[1:])],
        [(key, value) for key, value in flat_left.items() if key not in flat_right],
        [(key, value) for key, value in flat_right.items() if key not in flat_left],
    ]


def _same(left: Any, right: Any) -> bool:
    """True if two values are equal, or differ only in notation.

    The string ``1e6`` equals the number 1000000, and the path ``./output/`` equals ``output``.
    """
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, str) and isinstance(right, str):
        is_path = "/" in left + right
        return left == right or (is_path and os.path.normpath(left) == os.path.normpath(right))
    try:
        return bool(left == right) or float(left) == float(right)
    except (TypeError, ValueError):
        return False


def mindformers_yaml(name: str) -> dict[str, Any] | None:
    """The file's content if it is a MindFormers YAML; None otherwise."""
    if not Path(name).is_file():
        return None
    value = read_yaml(Path(name))
    return value if "runner_config" in value or "train_dataset" in value else None


def rendered(recipe: Recipe, runs: Path) -> dict[str, Any]:
    """The MindFormers YAML of the recipe's first train stage.

    Raises:
        InputError: The recipe has no train stage.
    """
    from pcl_reasoner.train.render import render_for_plan
    from pcl_reasoner.train.shape import training_stages

    first = training_stages(recipe, "to compare with a MindFormers YAML")[0]
    value: dict[str, Any] = render_for_plan(make_plan(recipe, runs, until=first).stages[-1])
    return value


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings -> ``a.b.c``: value. Mappings in a list are keyed by their ``type``."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        named = {str(item.get("type", index)): item for index, item in enumerate(value)}
        return flatten(named, prefix)
    if not isinstance(value, Mapping):
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= flatten(item, f"{prefix}.{key}" if prefix else str(key))
    return found
