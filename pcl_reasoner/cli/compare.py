"""Compares two nested mappings key by key.

{"train": {"learning_rate": 1.0e-6}} against {"train": {"learning_rate": 6.0e-5}}
-> [("train.learning_rate", 1e-06, 6e-05)]
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.files import read_yaml
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import Recipe

ABSENT = "—"
"""Shown for a key that one side does not have."""


def differences(left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys whose values differ: in the left's order, then keys of the right only.

    Yields:
        Key, left value, right value; ABSENT for a side without the key.
    """
    flat_left, flat_right = flatten(left), flatten(right)
    for key in flat_left | flat_right:
        values = flat_left.get(key, ABSENT), flat_right.get(key, ABSENT)
        if values[0] != values[1]:
            yield key, *values


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
