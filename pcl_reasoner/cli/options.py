"""Options that commands share, and the command-line arguments that reproduce a loaded recipe."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pcl_reasoner.core.errors import InputError, StageError, shortened

if TYPE_CHECKING:
    from pcl_reasoner.runner.plan import PlannedStage
    from pcl_reasoner.runner.recipe import Recipe

Command = TypeVar("Command", bound=Callable[..., Any])


class _Path(click.Path):
    """A path as a ``Path``, with ``~`` and ``~user`` expanded; an empty text is no path."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from pcl_reasoner.core import files

        try:
            expanded = files.expanded(value)
        except InputError as error:
            self.fail(str(error), param, ctx)
        if not str(value):
            self.fail("must not be empty; write . for the current folder.", param, ctx)
        if not files.is_possible(str(expanded)):
            self.fail(f"{shortened(str(value), 100)!r} cannot be a path.", param, ctx)
        return super().convert(expanded, param, ctx)


PATH = _Path(path_type=Path)
FILE = _Path(path_type=Path, dir_okay=False)
FOLDER = _Path(path_type=Path, file_okay=False)
POSITIVE = click.IntRange(min=1)


def example(*lines: str) -> str:
    """Format example commands as the last lines of a command's help."""
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
        default="laptop.yaml",
        metavar="FILE",
        help="Launch file, by path or shipped name: where the recipe runs.",
    ),
    click.option(
        "--profile",
        metavar="NAME",
        help="Overlay of the recipe; if left out, the launch file's profile. 'paper': no overlay.",
    ),
    click.option("--seed", type=click.IntRange(min=0), help="Replaces the recipe's seed."),
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
    show_default=False,
    type=FOLDER,
    metavar="DIR",
    help="Folder of all runs; PCLR_RUNS or ./runs if left out.",
)
hosts_option = click.option(
    "--hosts", is_flag=True, help="Also ask all hosts over SSH whether they can run the stages."
)


def load(recipe: str, overrides: tuple[str, ...] = (), **options: Any) -> Recipe:
    """Load a recipe with the given options."""
    from pcl_reasoner.runner.recipe import load_recipe

    return load_recipe(recipe, overrides=overrides, **options)


def arguments_of(recipe: Recipe) -> str:
    """The command-line arguments that load this recipe again: its name, options and overrides."""
    return shlex.join(recipe.arguments(os.path.relpath(recipe.path)))


def require_done(planned: PlannedStage, recipe: Recipe) -> None:
    """Check that a stage is done.

    Raises:
        StageError: The stage is not done; the message has the command that runs it.
    """
    if not planned.done:
        command = f"pclr-ms run {arguments_of(recipe)} --until {planned.spec.name}"
        raise StageError(f"stage {planned.title}: not done yet. Run it with: {command}")
