"""The command ``pclr-ms validate``, and the same checks at the start of ``run``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pcl_reasoner.cli.options import example, hosts_option, load, recipe_options, runs_option
from pcl_reasoner.core import errors

if TYPE_CHECKING:
    from pcl_reasoner.preflight.check import StartCheck, Verdict
    from pcl_reasoner.runner.plan import Plan, PlannedStage
    from pcl_reasoner.runner.recipe import Recipe


@click.command(epilog=example("pclr-ms validate v15_opg --launch atlas_910c_16x8"))
@recipe_options
@click.option("--until", metavar="STAGE", help="Check only this stage and those that it reads.")
@hosts_option
@runs_option
def validate(until: str | None, hosts: bool, runs: Path, **options: Any) -> None:
    """Check a recipe, its profile, launch file and overrides; show all errors at once.

    The stages are checked against one another, the model and the launch file, as `run` does before
    its first stage.
    """
    from pcl_reasoner.preflight.check import check_recipe
    from pcl_reasoner.train.shape import unknown_shapes

    found: list[Verdict] = []

    def further(recipe: Recipe) -> list[str]:
        found.append(check_recipe(recipe, until, runs if hosts else None))
        return found[-1].errors

    recipe = load(until=until, further=further, **options)
    warn(found[-1].warnings)
    click.echo(f"ok: {len(recipe.stages)} stages")
    for unknown in unknown_shapes(recipe):
        click.echo(f"not checked: {unknown}")


def refuse_wrong_plan(plan: Plan, to_run: Sequence[PlannedStage], checks: StartCheck) -> None:
    """Show the warnings of a run.

    Raises:
        InputError: Everything that is wrong with the stages that will run.
    """
    from pcl_reasoner.preflight.sandboxes import missing_sandbox
    from pcl_reasoner.train.shape import wrong_weights

    verdict = checks.verdict(plan, to_run)
    wrong = [*plan.missing, *wrong_weights(plan), *missing_sandbox(plan, to_run), *verdict.errors]
    if wrong:
        raise errors.join_errors(list(dict.fromkeys(wrong)))
    warn(verdict.warnings)


def warn(warnings: Sequence[str]) -> None:
    """Show warnings."""
    for warning in warnings:
        click.echo(f"warning: {warning}")
