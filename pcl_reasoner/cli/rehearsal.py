"""The command ``rehearse``. main.py adds it to the command line and translates its errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pcl_reasoner.cli.options import POSITIVE, example, load, recipe_options, runs_option

if TYPE_CHECKING:
    from pcl_reasoner.rehearse.report import Rehearsal
    from pcl_reasoner.rehearse.scale import Scaled
    from pcl_reasoner.runner.plan import Plan, PlannedStage
    from pcl_reasoner.train.config import TrainConfig


@click.command(
    epilog=example(
        "pclr-ms rehearse v15_opg --launch atlas_910c_16x8",
        "pclr-ms rehearse v1_sft --launch v1_dp8_tp8_pp2 --ranks 16",
        "pclr-ms rehearse am_thinking_v1 --launch atlas_910c_rl --stage rl_1",
    )
)
@recipe_options
@click.option(
    "--ranks",
    default=8,
    type=POSITIVE,
    help="Largest number of ranks; each is a process of this machine.",
)
@click.option("--steps", default=3, type=POSITIVE, help="Optimizer steps; of rl: rounds.")
@click.option("--stage", help="Only this stage; all stages that train if left out.")
@runs_option
def rehearse(ranks: int, steps: int, stage: str | None, runs: Path, **options: Any) -> None:
    """Execute a recipe's training as ranks on a CPU, and compare it with one process.

    The ranks run the program that a cluster runs: msrun, MindFormers' Trainer, the recipe's own
    MindFormers YAML, in the launch file's layout with fewer ranks and a tiny model. Compared are
    loss and gradient norm of each step, and after one step from random weights every gradient and
    every slice of every parameter. Of a stage rl, a step is a round, whose gradients are those of
    several micro-steps, and the weights that are handed over after each round are compared, too. It
    takes minutes, and needs x86-64, MindSpore 2.7.2 or 2.9.0, and g++.
    """
    from pcl_reasoner.runner.plan import make_plan
    from pcl_reasoner.runner.runner import locked
    from pcl_reasoner.train.shape import training_stages

    recipe = load(**options)
    for name in training_stages(recipe, "to rehearse", stage):
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
    """Run one stage's rehearsal."""
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.rehearse import compare, report, run
    from pcl_reasoner.train.shape import training_of

    planned = plan.stages[-1]
    config = training_of(planned.spec.config)
    assert config is not None
    scaled, packs = _scaled(planned, config, ranks, steps), _packs(planned)
    rows = f"rows from {packs}" if packs else "artificial rows, because the recipe's are not packed"
    for line in report.headlines(planned.title, config, scaled, rows):
        click.echo(line)
    with terminal.run_view() as progress:
        progress.begin(f"rehearsal of {planned.title}")
        one, ranked = run.rehearse(scaled, folder, packs, cache, progress)
    found = compare.compare(one, ranked)
    return report.Rehearsal(planned.title, config, scaled, rows, one, ranked, found)


def _scaled(planned: PlannedStage, config: TrainConfig, ranks: int, steps: int) -> Scaled:
    """Scale a stage ``train`` or ``rl`` down."""
    from pcl_reasoner.rehearse.rounds import scale_rounds
    from pcl_reasoner.rehearse.scale import scale
    from pcl_reasoner.rounds.config import RlConfig
    from pcl_reasoner.train.shape import known_shape

    shape = known_shape(config, planned.inputs["policy"].path)
    if isinstance(planned.spec.config, RlConfig):
        return scale_rounds(planned.spec.config, shape, ranks, steps)
    return scale(config, shape, ranks, steps)


def _packs(planned: PlannedStage) -> Path | None:
    """Return the recipe's packed rows; None if there are none (yet)."""
    packs = planned.inputs.get("packs")
    return packs.path if packs and (packs.path / "accounting.json").is_file() else None


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
