"""The command ``rehearse``. main.py adds it to the command line and translates its errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pcl_reasoner.cli.options import POSITIVE, example, load, recipe_options, runs_option

if TYPE_CHECKING:
    from pcl_reasoner.rehearse.report import Rehearsal
    from pcl_reasoner.runner.plan import Plan


@click.command(
    epilog=example(
        "pclr-ms rehearse v15_opg --launch atlas_910c_16x8",
        "pclr-ms rehearse v1_sft --launch v1_dp8_tp8_pp2 --ranks 16",
    )
)
@recipe_options
@click.option(
    "--ranks",
    default=8,
    type=POSITIVE,
    help="Largest number of ranks; each is a process of this machine.",
)
@click.option("--steps", default=3, type=POSITIVE, help="Optimizer steps.")
@runs_option
def rehearse(ranks: int, steps: int, runs: Path, **options: Any) -> None:
    """Execute a recipe's training as ranks on a CPU, and compare it with one process.

    The ranks run the program that a cluster runs: msrun, MindFormers' Trainer, the recipe's own
    MindFormers YAML, in the launch file's layout with fewer ranks and a tiny model. Compared are
    loss and gradient norm of each step, and after one step from random weights every gradient and
    every slice of every parameter. It takes minutes, and needs x86-64, MindSpore 2.7.2 or 2.9.0,
    and g++.
    """
    from pcl_reasoner.runner.plan import make_plan
    from pcl_reasoner.runner.runner import locked
    from pcl_reasoner.train.shape import training_stages

    recipe = load(**options)
    for name in training_stages(recipe, "to rehearse"):
        plan = make_plan(recipe, runs, until=name)
        with locked(runs.absolute() / recipe.name / "rehearsal"):
            _rehearse_stage(plan, runs.absolute(), ranks, steps)


def _rehearse_stage(plan: Plan, runs: Path, ranks: int, steps: int) -> None:
    from pcl_reasoner.rehearse import report

    folder = runs / plan.recipe.name / "rehearsal" / plan.stages[-1].spec.name
    found = _rehearsed(plan, folder, runs / ".cache", ranks, steps)
    _show(found)
    click.echo(f"written: {report.write(found, folder)}")
    report.refuse_differences(found)
    click.echo("within all limits: the ranks computed what one process computes")


def _rehearsed(plan: Plan, folder: Path, cache: Path, ranks: int, steps: int) -> Rehearsal:
    """Run one train stage's rehearsal."""
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.rehearse import compare, report, run
    from pcl_reasoner.rehearse.scale import scale
    from pcl_reasoner.train.config import TrainConfig
    from pcl_reasoner.train.shape import known_shape

    planned = plan.stages[-1]
    config = planned.spec.config
    assert isinstance(config, TrainConfig)
    inputs = planned.inputs
    scaled = scale(config, known_shape(config, inputs["policy"].path), ranks, steps)
    packs = inputs["packs"].path if (inputs["packs"].path / "accounting.json").is_file() else None
    rows = f"rows from {packs}" if packs else "artificial rows, because the recipe's are not packed"
    for line in report.headlines(planned.title, config, scaled, rows):
        click.echo(line)
    with terminal.run_view() as progress:
        progress.begin(f"rehearsal of {planned.title}")
        one, ranked = run.rehearse(scaled, folder, packs, cache, progress)
    found = compare.compare(one, ranked)
    return report.Rehearsal(planned.title, config, scaled, rows, one, ranked, found)


def _show(found: Rehearsal) -> None:
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.rehearse import report

    both = (found.one.seconds, found.ranks.seconds)
    click.echo(
        f"one process: {both[0]:.0f} s; {report.layout(found.scaled.config)}: {both[1]:.0f} s"
    )
    terminal.table(
        ("quantity", "largest error"),
        report.result_rows(found.comparison),
        right=("largest error",),
    )
