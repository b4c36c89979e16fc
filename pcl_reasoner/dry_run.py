"""What a run would do, written to files that can be read, diffed and given to MindFormers."""

from __future__ import annotations

from pathlib import Path

from pcl_reasoner.errors import StageError
from pcl_reasoner.files import yaml_text
from pcl_reasoner.plan import Plan
from pcl_reasoner.recipe import Recipe


def write_dry_run(recipe: Recipe, plan: Plan, runs: Path) -> list[Path]:
    """Write the resolved recipe, and the MindFormers YAML of every train stage.

    Args:
        recipe: The recipe.
        plan: Its plan.
        runs: Folder of all runs; the files go to ``<recipe>/dry_run`` in it.

    Returns:
        The files written.

    Raises:
        StageError: The folder cannot be written.
    """
    from pcl_reasoner.train.render import render_for_plan

    folder = runs / recipe.name / "dry_run"
    texts = {"recipe.resolved.yaml": yaml_text(recipe.resolved())}
    for planned in plan.stages:
        if planned.spec.type == "train":
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
