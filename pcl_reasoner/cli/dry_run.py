"""The output of ``pclr-ms run --dry-run``: stages, sizes, files written, commands per host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pcl_reasoner.runner.plan import Plan, PlannedStage
    from pcl_reasoner.runner.recipe import Recipe


def show(recipe: Recipe, plan: Plan, repeated: list[PlannedStage], runs: Path) -> None:
    """Print what would run, and write it to files.

    Args:
        recipe: The recipe.
        plan: Its plan.
        repeated: Stages that ``--from`` runs again.
        runs: Folder of all runs.
    """
    from pcl_reasoner.cli.dry_run_files import sizes_of, write_dry_run
    from pcl_reasoner.hosts.commands import commands_for_plan

    for index, planned in enumerate(plan.stages):
        words = "to run: asked for with --from" if planned in repeated else state(planned)
        click.echo(
            f"[{index + 1}/{len(plan.stages)}] {planned.title}  {planned.fingerprint[:8]}  {words}"
        )
    for file in write_dry_run(recipe, plan, runs):
        click.echo(f"written: {file}")
    for planned in plan.stages:
        if planned.spec.config.runs_on_hosts:
            click.echo("\n".join(sizes_of(planned)))
    say_scripts(recipe, plan, runs)
    for host, commands in commands_for_plan(plan).items():
        click.echo(f"on {host}:")
        for purpose, command in commands:
            click.echo(f"  # {purpose}\n  {command}")
    for problem in plan.missing:
        click.echo(f"missing: {problem}")


def say_scripts(recipe: Recipe, plan: Plan, runs: Path) -> None:
    """Write the scripts that a person starts on the hosts, and print the commands to start them."""
    from pcl_reasoner.cli.dry_run_files import write_launch_scripts

    for scripts in write_launch_scripts(recipe, plan, runs):
        one = scripts.hosts == 1
        hosts = "1 host" if one else f"{scripts.hosts} hosts"
        each = "" if one else ", on every host its own"
        click.echo(f"scripts of {scripts.title}, {hosts}: {scripts.folder}")
        click.echo(f"  start with: {scripts.command}")
        click.echo(f"  or without Slurm{each}: {scripts.by_hand}")


def state(planned: PlannedStage) -> str:
    """Whether a stage is done or has to run, and why."""
    from pcl_reasoner.runner.plan import why

    return "done" if planned.done else f"to run: {why(planned)}"
