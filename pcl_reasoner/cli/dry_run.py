"""``pclr-ms run --dry-run``: prints stages, sizes and commands per host, and runs nothing.

It also writes the resolved recipe, MindFormers' YAML files and launch scripts, for use elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pcl_reasoner.cli.validation import warn
from pcl_reasoner.core.errors import InputError, not_writable

if TYPE_CHECKING:
    from pcl_reasoner.rounds.config import RlConfig
    from pcl_reasoner.runner.plan import Plan, PlannedStage


def show(plan: Plan, repeated: list[PlannedStage], runs: Path, until: str | None) -> None:
    """Print what a run would do, and write the recipe, YAML files and scripts for it.

    Args:
        plan: The plan.
        repeated: Stages that ``--from`` runs again.
        runs: Folder of all runs.
        until: The last stage to run; None for all.

    Raises:
        StageError: A folder cannot be written.
    """
    from pcl_reasoner.dry_run.server_list import server_lines
    from pcl_reasoner.preflight.check import check_dry_run
    from pcl_reasoner.runner.plan import state

    for index, planned in enumerate(plan.stages):
        reason = "to run: requested with --from" if planned in repeated else state(planned)
        click.echo(
            f"[{index + 1}/{len(plan.stages)}] {planned.title}  {planned.fingerprint[:8]}  {reason}"
        )
    for file in _write_recipe(plan, runs):
        click.echo(f"written: {file}")
    for line in [*_to_fetch(plan), *server_lines(plan), *_sandboxes(plan)]:
        click.echo(line)
    for planned in plan.stages:
        if planned.spec.config.runs_on_hosts:
            click.echo("\n".join(_sizes_of(planned, plan)))
    show_scripts(plan, runs)
    _show_commands(plan)
    to_run = [one for one in plan.stages if not one.done or one in repeated]
    verdict = check_dry_run(plan, to_run, until)
    warn(verdict.warnings)
    for problem in [*plan.missing, *verdict.missing]:
        click.echo(f"missing: {problem}")
    for problem in verdict.errors[len(verdict.missing) :]:
        click.echo(f"refused: {problem}")


def _show_commands(plan: Plan) -> None:
    """Print every command of every host, in the order in which a run starts them."""
    from pcl_reasoner.dry_run.timeline import timeline

    before: tuple[str, str] | None = None
    for line in timeline(plan):
        if before is None:
            click.echo("commands, in the order of the run:")
        if before is None or before[0] != line.stage:
            click.echo(line.stage)
        if before != (line.stage, line.host):
            click.echo(f"  on {line.host}:")
        click.echo(f"    # {line.purpose}\n    {line.command}")
        before = (line.stage, line.host)


def _to_fetch(plan: Plan) -> Iterator[str]:
    """Yield the hub repositories that a run fetches before its first stage."""
    from pcl_reasoner.runner.sources import fetched

    for folder, (name, source) in plan.to_fetch.items():
        if not fetched(folder):
            yield f"to fetch: {name}, {source.kind} {source.hub} at {source.revision} -> {folder}"


def _sandboxes(plan: Plan) -> Iterator[str]:
    """Say where unfinished stages run programs, and whether sandboxes can be had here."""
    from pcl_reasoner.budget import sandbox_size
    from pcl_reasoner.budget.response_counts import Responses
    from pcl_reasoner.core.errors import StageError
    from pcl_reasoner.sandbox.config import SandboxConfig
    from pcl_reasoner.sandbox.opening import choose

    unfinished = {planned.title for planned in plan.stages if not planned.done}
    found = sandbox_size.tested(plan, Responses(plan.recipe))
    found = [one for one in found if one.stage in unfinished]
    placement = plan.recipe.launch.placement
    yield from sandbox_size.lines(found, placement)
    if found and placement.sandbox.engine != "http":
        try:
            choice = choose(SandboxConfig(), placement.sandbox)
            yield f"  on this machine: {choice.engine}, Python {choice.version}"
        except StageError as error:
            yield f"missing: {error}"


def _write_recipe(plan: Plan, runs: Path) -> list[Path]:
    """Write the resolved recipe, and the MindFormers YAML of every stage that trains.

    Returns:
        The written files, in ``<recipe>/dry_run`` below the folder of all runs.
    """
    from pcl_reasoner.core.files import yaml_text
    from pcl_reasoner.rl.render import planned_yaml

    folder = runs / plan.recipe.name / "dry_run"
    texts = {"recipe.resolved.yaml": yaml_text(plan.recipe.resolved())}
    for planned in plan.stages:
        if planned.spec.config.runs_on_hosts:
            same_recipe = planned.recipe.name == plan.recipe.name
            name = planned.spec.name if same_recipe else planned.title.replace("/", ".")
            texts[f"mindformers.{name}.yaml"] = yaml_text(planned_yaml(planned))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise not_writable(folder, error) from error
    return [folder / name for name in texts]


def show_scripts(plan: Plan, runs: Path) -> None:
    """Write the scripts that a person starts on the hosts, and print the commands to start them.

    Scripts exist for every unfinished stage whose processes a person starts, and for Ray if the
    launch file needs it. Their folder is ``<recipe>/launch/<stage>`` below the folder of all runs.

    Raises:
        StageError: A folder cannot be written.
    """
    from pcl_reasoner.hosts.scripts import write_ray_scripts, write_scripts

    recipe = plan.recipe
    ray = write_ray_scripts(recipe.launch.placement, runs.absolute() / recipe.name)
    found = [one for planned in plan.stages if not planned.done for one in write_scripts(planned)]
    for scripts in [*([ray] if ray else []), *found]:
        hosts = f"{scripts.hosts} {scripts.unit}{'' if scripts.hosts == 1 else 's'}"
        which = (
            "" if scripts.hosts == 1 else f", on every host its own script of each {scripts.unit}"
        )
        which = which.removesuffix(" of each host")
        click.echo(f"scripts of {scripts.title}, {hosts}: {scripts.folder}")
        click.echo(f"  start with: {scripts.command}")
        click.echo(f"  or without Slurm{which}: {scripts.by_hand}")


def _sizes_of(planned: PlannedStage, plan: Plan) -> list[str]:
    """The sizes of a stage that trains, as lines of text."""
    from pcl_reasoner.rounds.config import RlConfig

    config = planned.spec.config
    if isinstance(config, RlConfig):
        return list(_round_of(planned, config, plan))
    return _sizes_of_training(planned)


def _round_of(planned: PlannedStage, config: RlConfig, plan: Plan) -> Iterator[str]:
    """Yield the lines that describe a round of a stage ``rl``; on a CPU without an estimate."""
    from pcl_reasoner.budget import round_report
    from pcl_reasoner.budget.response_counts import Responses
    from pcl_reasoner.budget.round_size import estimate_round
    from pcl_reasoner.estimate.chips import chip_name, read_chip

    if config.device == "CPU":
        yield round_report.headline(planned.title, config)
        yield f"  {round_report.end_line(config)}"
        return
    chip = read_chip(chip_name(None, plan.recipe.launch.placement), config.precision)
    yield from round_report.lines(estimate_round(plan, planned, chip, Responses(plan.recipe)))
    yield f"  an estimate for {chip.title}; pclr-ms plan takes another chip and your own numbers"


def _sizes_of_training(planned: PlannedStage) -> list[str]:
    """The sizes that follow from a train stage's settings and rows, as lines of text.

    If the rows are not packed yet, their number is estimated from the counts that the recipe
    publishes. On a CPU there is no estimate: the published counts are not those of a laptop's run.
    """
    from pcl_reasoner.estimate.data_size import data_size
    from pcl_reasoner.train.config import TrainConfig
    from pcl_reasoner.train.render import packed_rows
    from pcl_reasoner.train.sizes import derived_sizes, size_lines

    config = planned.spec.config
    assert isinstance(config, TrainConfig)
    rows, origin = packed_rows(planned), "packed rows"
    unknown = f"sizes of {planned.title}: known when its rows are packed"
    if rows is None and config.device == "CPU":
        return [unknown]
    if rows is None:
        try:
            rows, origin = data_size(planned).rows, "rows, an estimate: nothing is packed yet"
        except InputError:
            return [f"{unknown}; pclr-ms plan estimates them from --problems or --segments"]
    lines = size_lines(derived_sizes(config, rows), config)
    return [f"sizes of {planned.title}, from {rows:,} {origin}:", *(f"  {one}" for one in lines)]
