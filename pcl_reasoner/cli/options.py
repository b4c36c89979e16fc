"""Options that commands share, and the arguments that load a recipe again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pcl_reasoner.runner.recipe import Recipe

Command = TypeVar("Command", bound=Callable[..., Any])

LAPTOP = "laptop.yaml"


def example(*lines: str) -> str:
    """An epilog with example commands."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def _all_of(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


where_options = _all_of(
    click.option(
        "--launch",
        default=LAPTOP,
        show_default=True,
        metavar="FILE",
        help="Launch file, by path or shipped name: where the recipe runs.",
    ),
    click.option(
        "--profile",
        metavar="NAME",
        help="Overlay of the recipe; the launch file's own if left out, 'paper' for none.",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), help="Takes the place of the recipe's seed."
    ),
)
recipe_options = _all_of(
    click.argument("recipe"),
    click.argument("overrides", nargs=-1, metavar="[STAGE.KEY=VALUE]..."),
    where_options,
)
runs_option = click.option(
    "--runs",
    envvar="PCLR_RUNS",
    default="runs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of all runs; PCLR_RUNS or ./runs if left out.",
)


def load(recipe: str, overrides: tuple[str, ...] = (), **options: Any) -> Recipe:
    """Load a recipe with the given options."""
    from pcl_reasoner.runner.recipe import load_recipe

    return load_recipe(recipe, overrides=overrides, **options)


def words_of(recipe: Recipe) -> str:
    """The arguments that load this recipe again."""
    from pcl_reasoner.core.files import shipped

    is_shipped = recipe.path.parent == shipped("recipes")
    words = [recipe.path.stem if is_shipped else os.path.relpath(recipe.path)]
    if recipe.launch_file != LAPTOP:
        words += ["--launch", recipe.launch_file]
    if recipe.profile != recipe.launch.profile:
        words += ["--profile", recipe.profile]
    if recipe.seed_given is not None:
        words += ["--seed", str(recipe.seed_given)]
    return shlex.join([*words, *recipe.overrides])
