"""The command ``pclr-ms plan``: estimates memory and hours of training, without a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pcl_reasoner.cli.options import POSITIVE, example, load, recipe_options, runs_option

if TYPE_CHECKING:
    from pcl_reasoner.budget.plan_training import Planned
    from pcl_reasoner.runner.plan import Plan

_ASSUMPTIONS = (
    *("segments", "segment_tokens", "problems", "measured_hours", "response_tokens", "measured"),
)
"""Names of the options that give the user's own numbers to the estimate."""


@click.command(
    epilog=example(
        "pclr-ms plan v1_sft --launch v1_dp8_tp8_pp2",
        "pclr-ms plan v15_opg --launch atlas_910c_16x8 --segment-tokens 20000 --measured-hours 116",
        "pclr-ms plan v1_sft --launch v1_dp8_tp8_pp2 --measured runs/v1_sft/train-…/metrics.jsonl",
        "pclr-ms plan am_thinking_v1 --launch atlas_910c_16x8 --problems 100000",
        "pclr-ms plan am_thinking_v1 --launch atlas_910c_rl --stage rl_1 --problems 54000",
    )
)
@recipe_options
@click.option(
    "--chip",
    metavar="NAME",
    help="The chip in place of the launch file's: a name in chips.yaml, or a file like it.",
)
@click.option(
    "--segments",
    type=POSITIVE,
    metavar="N",
    help="Number of training responses; the recipe's published number if left out.",
)
@click.option(
    "--problems",
    type=POSITIVE,
    metavar="N",
    help="Number of problems that are sampled; published numbers are used if left out.",
)
@click.option(
    "--segment-tokens",
    type=click.FloatRange(min=1),
    metavar="N",
    help="Mean tokens of a response with its prompt; published or assumed if left out.",
)
@click.option(
    "--measured-hours",
    type=click.FloatRange(min=0, min_open=True),
    metavar="H",
    help="Hours of a known run: print the MFU and the chip's speed that reproduce them.",
)
@click.option(
    "--response-tokens",
    type=click.FloatRange(min=1),
    metavar="N",
    help="Mean tokens of a sampled response; published or assumed if left out.",
)
@click.option(
    "--dry-run-log",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Log of MindSpore's own dry run of a rank: its memory is shown beside the estimate.",
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="metrics.jsonl of a real training: replaces what the plan assumes, and marks it.",
)
@click.option("--stage", help="Only this stage; all stages that train if left out.")
@runs_option
def plan(
    chip: str | None, dry_run_log: Path | None, stage: str | None, runs: Path, **options: Any
) -> None:
    """Estimate memory and hours of a recipe without a device or data.

    Prints the memory per device by pipeline stage and kind, the fullest stage, the hours by
    activity, what saves and starts take, the changes that save most, all layouts of the same number
    of devices, the hours of servers and of sandboxes, the disk by stage and day, and the largest
    uncertainty of each figure. Of a stage rl
    it prints one round: micro-steps, the hours of sampling, tests, training and hand-over, and when
    rounds end. Parameters and moments are exact; all else comes from formulas
    (docs/cluster/plan.md). Writes plan.json and layouts.svg.
    """
    from pcl_reasoner.budget import plan_files
    from pcl_reasoner.core.errors import InputError
    from pcl_reasoner.precompile.cann import read_dry_run
    from pcl_reasoner.runner.plan import make_plan
    from pcl_reasoner.train.shape import training_stages

    assumptions = {key: options.pop(key) for key in _ASSUMPTIONS}
    assumptions["dry_run"] = read_dry_run(dry_run_log) if dry_run_log else None
    recipe = load(**options)
    whole = make_plan(recipe, runs)
    problems = []
    for name in training_stages(recipe, "to plan", stage):
        try:
            found = _planned(make_plan(recipe, runs, until=name), whole, chip, assumptions)
        except InputError as error:
            problems.append(f"{recipe.name}/{name}: not planned: {error}")
            continue
        _show(found)
        for file in plan_files.write(found, runs.absolute() / recipe.name / "plan" / name):
            click.echo(f"written: {file}")
    # The stages that can be planned are shown first.
    if problems:
        raise InputError("\n".join(problems))


def _planned(training: Plan, whole: Plan, chip: str | None, assumptions: dict[str, Any]) -> Planned:
    """Estimate the last stage of ``training``, which trains; ``whole`` has all stages."""
    from pcl_reasoner.budget.plan_training import plan_training
    from pcl_reasoner.estimate.chips import chip_name, read_chip
    from pcl_reasoner.estimate.training_size import compute_type
    from pcl_reasoner.precompile import compile_plan

    config = compile_plan.configuration(training)
    name = chip_name(chip, training.recipe.launch.placement)
    device = read_chip(name, compute_type(config))
    return plan_training(training.stages[-1], whole, config, device, assumptions)


def _show(found: Planned) -> None:
    from pcl_reasoner.budget.plan_parts import Table, parts
    from pcl_reasoner.cli import terminal

    for part in parts(found):
        if isinstance(part, Table):
            terminal.table(part.columns, part.rows, right=part.right)
        else:
            click.echo("\n".join(part))
