"""The command ``pclr-ms plan``: estimates memory and hours of training, without a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pcl_reasoner.cli.options import example, load, recipe_options, runs_option

if TYPE_CHECKING:
    from pcl_reasoner.estimate.plan_report import Planned


@click.command(
    epilog=example(
        "pclr-ms plan v1_sft --launch v1_dp8_tp8_pp2",
        "pclr-ms plan v15_opg --launch atlas_910c_16x8 --segment-tokens 20000 --measured-hours 116",
    )
)
@recipe_options
@click.option(
    "--chip",
    default="ascend_910c_die",
    show_default=True,
    metavar="NAME",
    help="Whose figures are reckoned with: ascend_910c_die or ascend_910b.",
)
@click.option(
    "--segments",
    type=click.IntRange(min=1),
    metavar="N",
    help="Responses that are trained on; what the recipe publishes if left out.",
)
@click.option(
    "--segment-tokens",
    type=click.FloatRange(min=1),
    metavar="N",
    help="Mean tokens of one with its prompt; from what is published, or assumed, if left out.",
)
@click.option(
    "--measured-hours",
    type=click.FloatRange(min=0, min_open=True),
    metavar="H",
    help="Hours of a run that is known: say the MFU and the chip's speed that reproduce it.",
)
@click.option(
    "--response-tokens",
    type=click.FloatRange(min=1),
    metavar="N",
    help="Mean tokens of a sampled response; from what is published, or assumed, if left out.",
)
@click.option(
    "--dry-run-log",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Log of MindSpore's own dry run of a rank: its memory is shown beside the estimate.",
)
@runs_option
def plan(
    chip: str,
    segments: int | None,
    segment_tokens: float | None,
    measured_hours: float | None,
    response_tokens: float | None,
    dry_run_log: Path | None,
    runs: Path,
    **options: Any,
) -> None:
    """Estimate memory and hours of a recipe without a device or data.

    Prints the memory per device by pipeline stage and kind, the fullest stage, the hours by
    activity, the changes that save most, all layouts of the same number of devices, and the hours
    of sampling. Parameters and moments are exact; all else comes from formulas (docs/plan.md).
    Writes plan.json and layouts.svg.
    """
    from pcl_reasoner.estimate import plan_report
    from pcl_reasoner.estimate.chips import read_chip
    from pcl_reasoner.estimate.training_size import compute_type
    from pcl_reasoner.precompile import compile_plan
    from pcl_reasoner.precompile.cann import read_dry_run
    from pcl_reasoner.runner.plan import make_plan
    from pcl_reasoner.train.shape import training_stages

    recipe = load(**options)
    given = {
        "segments": segments,
        "segment_tokens": segment_tokens,
        "measured_hours": measured_hours,
        "response_tokens": response_tokens,
        "dry_run": read_dry_run(dry_run_log) if dry_run_log else None,
    }
    for name in training_stages(recipe, "to plan"):
        walk = make_plan(recipe, runs, until=name)
        config = compile_plan.configuration(walk)
        device = read_chip(chip, compute_type(config))
        found = plan_report.plan_training(walk.stages[-1], config, device, given)
        _show(found)
        for file in plan_report.write(found, runs.absolute() / recipe.name / "plan" / name):
            click.echo(f"written: {file}")


def _show(found: Planned) -> None:
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.estimate import plan_report

    for line in plan_report.headlines(found):
        click.echo(line)
    click.echo()
    columns, rows = plan_report.memory_rows(found.now.job)
    terminal.table(columns, rows, right=columns[1:])
    for line in (plan_report.memory_verdict(found), *plan_report.notes(found)):
        click.echo(line)
    click.echo()
    for line in plan_report.data_lines(found.size, found.derived):
        click.echo(line)
    click.echo()
    numbers = ("seconds a step", "hours", "share")
    terminal.table(("time", *numbers), plan_report.time_rows(found.now), right=numbers)
    for line in plan_report.time_lines(found):
        click.echo(line)
    _show_choices(found)


def _show_choices(found: Planned) -> None:
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.estimate import plan_report

    click.echo()
    numbers: tuple[str, ...] = ("hours", "saved", "GiB")
    better = plan_report.change_rows(found)
    if better:
        terminal.table(("changes worth most, one at a time", *numbers), better, right=numbers)
    else:
        click.echo("no single change of those tried saves hours and fits")
    click.echo()
    numbers = ("GiB", "hours", "MFU")
    columns = ("layout", "layers recomputed a stage", "GiB", "fits", "hours", "MFU")
    terminal.table(columns, plan_report.layout_rows(found), right=numbers)
    click.echo("layouts other than the first: swap off, as few recomputed layers as fit")
    _show_sampling(found)


def _show_sampling(found: Planned) -> None:
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.estimate import serving_report

    if found.drawn:
        click.echo()
        columns = serving_report.HEADINGS
        terminal.table(columns, serving_report.rows(found.drawn), right=columns[1:])
        for line in serving_report.lines(found.drawn):
            click.echo(line)
