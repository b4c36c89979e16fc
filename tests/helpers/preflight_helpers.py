"""Mistakes in recipes and launch files, and what the rules say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcl_reasoner.core import files
from pcl_reasoner.core.files import yaml_text
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.preflight.check import Verdict, check
from pcl_reasoner.runner.recipe import Recipe, load_recipe
from pcl_reasoner.scene.graph import scene_of


def own_launch(folder: Path, name: str, **placement: Any) -> str:
    """A copy of a shipped launch file with other values in ``placement``; None removes a key."""
    launch = read_yaml(files.find(name, "launch"))
    launch["placement"] |= placement
    for key in [key for key, value in launch["placement"].items() if value is None]:
        del launch["placement"][key]
    file = folder / "own.yaml"
    file.write_text(yaml_text(launch))
    return str(file)


def own_recipe(folder: Path, name: str, **stages: dict[str, Any]) -> str:
    """A copy of a shipped recipe with its profiles, and with stages added or changed."""
    file = files.find(name, "recipes")
    recipe = read_yaml(file)
    changed = {stage: recipe["stages"].get(stage, {}) | keys for stage, keys in stages.items()}
    recipe["stages"] |= changed
    profiles = file.parent
    recipe["profiles"] = {key: str(profiles / one) for key, one in recipe["profiles"].items()}
    copy = folder / f"{name}.yaml"
    copy.write_text(yaml_text(recipe))
    return str(copy)


def verdict(
    recipe: str,
    launch: str = "atlas_910c_16x8",
    *overrides: str,
    until: str | None = None,
    sources: bool = False,
    **run: Any,
) -> Verdict:
    """What the rules find; of absent sources, which shipped recipes have here, only if asked."""
    loaded: Recipe = load_recipe(recipe, launch, overrides=overrides, until=until)
    found = check(scene_of(loaded, until, **run))
    return found if sources else without_absent_sources(found)


def without_absent_sources(found: Verdict) -> Verdict:
    """What the rules say of all else: the AIME questions are not here."""
    errors = [one for one in found.errors if ": no such files. Put the data there" not in one]
    warnings = [one for one in found.warnings if not one.startswith("not on this machine: ")]
    return Verdict(errors, warnings, found.missing)
