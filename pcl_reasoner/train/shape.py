"""The model's shape: from the weights' own config.json, held against what the recipe says."""

from __future__ import annotations

from pathlib import Path

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.runner.recipe import Recipe
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.weights.model_config import ModelShape, read_shape


def training_stages(recipe: Recipe, purpose: str) -> list[str]:
    """Names of the stages that train, in the recipe's order.

    Args:
        recipe: The recipe.
        purpose: What they are wanted for, e.g. ``to compile``.

    Raises:
        InputError: There are none.
    """
    found = [name for name, one in recipe.stages.items() if isinstance(one.config, TrainConfig)]
    if not found:
        raise InputError(f"{recipe.path}: has no train stage {purpose}.")
    return found


def shape_of(config: TrainConfig, policy: Path) -> ModelShape:
    """The shape to train: the weights' own; a recipe that contradicts it is an error.

    Raises:
        StageError: The recipe contradicts the weights, or neither says the shape.
    """
    found = read_shape(policy)
    if found is None and config.model is None:
        raise StageError(
            f"{policy}: no config.json, and the recipe gives no train.model: the model's shape "
            "is unknown. Give the folder of the weights."
        )
    problems = config.weights_problems(policy)
    if problems:
        raise StageError(f"{'; '.join(problems)}.")
    shape = found or config.model
    assert shape is not None
    return shape


def unknown_shapes(recipe: Recipe) -> list[str]:
    """What could not be held against the layout yet, one sentence for each such train stage.

    Args:
        recipe: The recipe; its layouts have been checked against the shapes that are known.
    """
    found = []
    for spec in recipe.stages.values():
        if not isinstance(spec.config, TrainConfig) or spec.config.model is not None:
            continue
        policy = spec.inputs["policy"][0]
        source = recipe.sources.get(policy)
        folder = Path(source.path) if source and source.path and not source.stage else None
        if folder is None or not (folder.expanduser() / "config.json").is_file():
            found.append(
                f"stage {spec.name}: heads, layers, vocabulary and widths: the weights of "
                f"{policy!r} are not here and the recipe gives no {spec.name}.model"
            )
    return found


def wrong_weights(plan: Plan) -> list[str]:
    """How weights that are there already cannot be trained, before anything is run.

    Args:
        plan: What is to run; weights that are fetched or made later are checked by their stage.
    """
    return [
        f"stage {planned.title}: {problem}."
        for planned in plan.stages
        if isinstance(planned.spec.config, TrainConfig) and not planned.done
        for problem in planned.spec.config.weights_problems(planned.inputs["policy"].path)
    ]


def planned_shape(planned: PlannedStage, config: TrainConfig, policy: Path) -> ModelShape:
    """The weights' shape; before they are there, the recipe's, or a base model's that is there."""
    if read_shape(policy) is None and config.model is None:
        raise StageError(
            f"stage {planned.title}: {policy} has no config.json yet, so the model's shape is "
            "unknown. Run the stages before it first, or give train.model in the recipe."
        )
    return shape_of(config, policy)
