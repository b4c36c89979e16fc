"""Finds the model's shape in the weights' config.json, and checks it against the recipe."""

from pathlib import Path

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.files import expanded, is_file, nearest
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.runner.plan import Plan
from pcl_reasoner.runner.recipe import Recipe
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.weights.model_config import ModelShape, read_shape


def training_of(config: StageConfig) -> TrainConfig | None:
    """Return the settings of the training that a stage makes; None if it makes none.

    Args:
        config: The stage's settings. Those of ``rl`` have them as ``training``.
    """
    found = config if isinstance(config, TrainConfig) else getattr(config, "training", None)
    return found if isinstance(found, TrainConfig) else None


def training_stages(recipe: Recipe, purpose: str, only: str | None = None) -> list[str]:
    """Return the names of the stages that train, in the recipe's order.

    Args:
        recipe: The recipe.
        purpose: What the stages are needed for, in the error message, e.g. ``to compile``.
        only: One of these names, to return it alone; None for all.

    Raises:
        InputError: The recipe has no stage ``train`` or ``rl``, or none with the name ``only``.
    """
    found = [name for name, one in recipe.stages.items() if training_of(one.config)]
    if not found:
        raise InputError(f"{recipe.path}: has no train stage {purpose}.")
    if only is not None and only not in found:
        raise InputError(
            f"--stage {only}: no stage of this name trains.{nearest(only, found)} "
            f"The recipe's stages that train: {', '.join(found)}."
        )
    if only is not None:
        return [only]
    return found


def shape_of(config: TrainConfig, policy: Path) -> ModelShape:
    """Return the model's shape, from the weights' config.json or, without one, from the recipe.

    Raises:
        StageError: The recipe contradicts the weights, or neither has the shape.
    """
    found = read_shape(policy) or config.model
    if found is None:
        raise StageError(
            f"{policy}: no config.json, and the recipe gives no train.model: the model's shape "
            "is unknown. Give the folder of the weights or train.model; if an earlier stage writes "
            "the weights, run that stage first."
        )
    problems = config.weights_problems(policy)
    if problems:
        raise StageError(f"{'; '.join(problems)}.")
    return found


def known_shape(config: TrainConfig, policy: Path) -> ModelShape | None:
    """Return the model's shape from the recipe or, if it gives none, from the weights, if any."""
    return config.model or read_shape(policy)


def unknown_shapes(recipe: Recipe) -> list[str]:
    """List the stages that train and whose layout cannot be checked yet: the shape is unknown.

    Args:
        recipe: The recipe; its layouts have been checked against all known shapes.

    Returns:
        One sentence per such stage.
    """
    found = []
    for spec in recipe.stages.values():
        config = training_of(spec.config)
        if config is None or config.model is not None:
            continue
        policy = spec.inputs["policy"][0]
        source = recipe.sources.get(policy)
        folder = Path(source.path) if source and source.path and not source.stage else None
        if folder is None or not is_file(expanded(folder) / "config.json"):
            found.append(
                f"stage {spec.name}: heads, layers, vocabulary and widths: the weights of "
                f"{policy!r} are not here and the recipe gives no {spec.name}.model"
            )
    return found


def wrong_weights(plan: Plan) -> list[str]:
    """Check all weights that exist already against the recipe, before any stage runs.

    Args:
        plan: The plan to run. Weights that do not exist yet are checked later, by the stage itself.

    Returns:
        One sentence per stage whose weights do not fit its training; empty if there is none.
    """
    return [
        f"stage {planned.title}: {problem}."
        for planned in plan.stages
        if not planned.done and (config := training_of(planned.spec.config))
        for problem in config.weights_problems(planned.inputs["policy"].path)
    ]
