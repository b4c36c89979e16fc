"""Writes files that describe a run, to be read, compared or given to MindFormers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.files import yaml_text
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.runner.recipe import Recipe

if TYPE_CHECKING:
    from pcl_reasoner.hosts.scripts import Scripts


def write_dry_run(recipe: Recipe, plan: Plan, runs: Path) -> list[Path]:
    """Write the resolved recipe, and the MindFormers YAML of every train stage.

    Args:
        recipe: The recipe.
        plan: Its plan.
        runs: Folder of all runs; the files go to ``<recipe>/dry_run`` in it.

    Returns:
        The written files.

    Raises:
        StageError: The folder cannot be written.
    """
    from pcl_reasoner.train.render import render_for_plan

    folder = runs / recipe.name / "dry_run"
    texts = {"recipe.resolved.yaml": yaml_text(recipe.resolved())}
    for planned in plan.stages:
        if planned.spec.config.runs_on_hosts:
            own = planned.recipe.name == recipe.name
            name = planned.spec.name if own else f"{planned.recipe.name}.{planned.spec.name}"
            texts[f"mindformers.{name}.yaml"] = yaml_text(render_for_plan(planned))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StageError(
            f"{folder}: cannot be written ({error.strerror}). Choose another place with --runs."
        ) from error
    return [folder / name for name in texts]


def write_launch_scripts(recipe: Recipe, plan: Plan, runs: Path) -> list[Scripts]:
    """Write the scripts of Ray and of every stage to run that a person starts on its hosts.

    Args:
        recipe: The recipe.
        plan: Its plan.
        runs: Folder of all runs; the scripts go to ``<recipe>/launch/<stage>`` in it.

    Returns:
        The written scripts; those of Ray first, if the launch file needs them.

    Raises:
        StageError: A folder cannot be written.
    """
    from pcl_reasoner.hosts.scripts import has_scripts, write_ray_scripts, write_scripts

    ray = write_ray_scripts(recipe.launch.placement, runs.absolute() / recipe.name)
    waiting = [planned for planned in plan.stages if not planned.done and has_scripts(planned)]
    return [*([ray] if ray else []), *(write_scripts(planned) for planned in waiting)]


def sizes_of(planned: PlannedStage) -> list[str]:
    """The sizes that follow from a train stage's settings and rows, as lines of text.

    If the rows are not packed yet, their number is estimated from the counts that the recipe
    publishes. On a CPU there is no estimate: the published counts are not those of a laptop's run.
    """
    from pcl_reasoner.estimate.plan_report import size_of
    from pcl_reasoner.train.config import TrainConfig
    from pcl_reasoner.train.render import packed_rows
    from pcl_reasoner.train.sizes import derived_sizes, size_lines

    config = planned.spec.config
    assert isinstance(config, TrainConfig)
    rows, origin = packed_rows(planned), "packed rows"
    if rows is None and config.device == "CPU":
        return [f"sizes of {planned.title}: known when its rows are packed"]
    if rows is None:
        try:
            size = size_of(planned)
        except InputError as error:
            return [f"sizes of {planned.title}: known when its rows are packed ({error})"]
        rows, origin = size.rows, "rows, an estimate: nothing is packed yet"
    lines = size_lines(derived_sizes(config, rows), config)
    return [f"sizes of {planned.title}, from {rows:,} {origin}:", *(f"  {one}" for one in lines)]
