"""Applies the rules, and returns all errors and all warnings at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.preflight.absent import absent_sources
from pcl_reasoner.preflight.on_hosts import check_machines, uses_hosts
from pcl_reasoner.preflight.rules import RULES
from pcl_reasoner.runner.plan import FINGERPRINT_DIGITS, Plan, PlannedStage
from pcl_reasoner.runner.recipe import Recipe, load_recipe
from pcl_reasoner.scene.graph import Node, Scene, scene_of
from pcl_reasoner.supervise.connection import SSH

_MISSING = ("no_server", "keys_that_are_not_set")
"""Rules about what a person still has to start or to set; a dry run tells these apart."""


@dataclass(frozen=True)
class Verdict:
    """What the rules found.

    Args:
        errors: What must be corrected before anything runs; ``missing`` comes first.
        warnings: What is reported, and stops nothing.
        missing: Those of the errors that say which servers and keys are still missing.
    """

    errors: list[str]
    warnings: list[str]
    missing: list[str]


def check(scene: Scene) -> Verdict:
    """Apply all rules.

    Args:
        scene: The stages, and which of them will run.
    """
    errors: dict[str, None] = {}
    warnings: dict[str, None] = {}
    missing: dict[str, None] = {}
    for name, rule in RULES.items():
        if (rule.when == "run" and not scene.here) or (
            rule.when == "plan" and scene.to_run is None
        ):
            continue
        where = warnings if rule.level == "warning" else missing if name in _MISSING else errors
        for one in rule.check(scene):
            if not one.nodes or any(map(scene.runs, one.nodes)):
                where.setdefault(one.text)
    return Verdict([*missing, *errors], list(warnings), list(missing))


def check_recipe(recipe: Recipe, until: str | None = None, runs: Path | None = None) -> Verdict:
    """Check a recipe that is not run now: all its stages, and those of the recipes that it reads.

    Args:
        recipe: The recipe; it may lack stages whose settings are wrong.
        until: The last stage to run; None for all.
        runs: Folder of all runs, to check the hosts, too; None: they are not asked.
    """
    scene = scene_of(recipe, until)
    found = check(scene)
    if runs is None:
        return found
    errors, misfits, warnings = check_machines(scene, runs)
    errors, warnings = [*found.errors, *errors, *misfits], [*found.warnings, *warnings]
    return Verdict(errors, warnings, found.missing)


def _with_hosts(found: Verdict, scene: Scene, runs: Path, how: str | None) -> Verdict:
    """Add what the hosts say at the start of a run.

    Versions that are not in the table may work together, so a run is only warned of them.
    """
    errors, misfits, warnings = check_machines(scene, runs, how)
    warnings = [*found.warnings, *misfits, *warnings]
    return Verdict([*found.errors, *errors], warnings, found.missing)


@dataclass
class StartCheck:
    """The checks at the start of a run.

    Args:
        until: The last stage to run; None for all.
        runs: Folder of all runs.
        start: The option ``--start``.
        hosts: Whether the hosts are asked in any case. With ``--start ssh`` they are asked if a
            stage that will run starts processes on them, and all sources are on this machine.
        dry_run: Whether nothing is run, so that nothing is refused before it is shown.
    """

    until: str | None
    runs: Path
    start: str | None
    hosts: bool = False
    dry_run: bool = False
    asked: bool = False
    """Whether the hosts have been asked."""

    def new_errors(self, recipe: Recipe) -> list[str]:
        """Check the stages that have no artifact at all, which needs no plan and hashes nothing.

        Args:
            recipe: The recipe; it may lack stages whose settings are wrong.
        """
        if self.dry_run:
            return []
        scene = scene_of(recipe, self.until, here=True, start=self.start)
        nodes = scene.nodes.items()
        scene.to_run = {title for title, node in nodes if not _artifacts(node, self.runs)}
        return self._check(scene).errors

    def verdict(self, plan: Plan, to_run: Iterable[PlannedStage]) -> Verdict:
        """Check a plan before its first stage runs.

        Args:
            plan: The plan.
            to_run: The stages that will run.
        """
        titles = {one.title for one in to_run}
        scene = scene_of(plan.recipe, self.until, titles, True, self.start)
        scene.later = self._later(scene)
        return self._check(scene)

    def _later(self, scene: Scene) -> list[Node]:
        """The unfinished stages after ``until``; none if they are wrong: their own run tells it."""
        if self.until is None:
            return []
        part = scene.recipe
        given = (part.launch_file, part.profile_given, part.overrides, part.seed_given)
        try:
            whole = load_recipe(str(part.path), *given)
        except InputError:
            return []
        nodes = [node for title, node in scene_of(whole).nodes.items() if title not in scene.nodes]
        return [node for node in nodes if not _artifacts(node, self.runs)]

    def _check(self, scene: Scene) -> Verdict:
        found = check(scene)
        if self.asked or not (self.hosts or self._needs_hosts(scene)):
            return found
        self.asked = True
        return _with_hosts(found, scene, self.runs, self.start)

    def _needs_hosts(self, scene: Scene) -> bool:
        """Whether the run starts processes on hosts; without its sources it does not get there."""
        return self.start == SSH and uses_hosts(scene) and not any(absent_sources(scene))


def _artifacts(node: Node, runs: Path) -> list[Path]:
    folder = runs.expanduser() / node.recipe.name
    return list(folder.glob(f"{node.name}-{'?' * FINGERPRINT_DIGITS}"))


def check_dry_run(plan: Plan, to_run: Iterable[PlannedStage], until: str | None) -> Verdict:
    """Check a plan that is only shown.

    Args:
        plan: The plan.
        to_run: The stages that would run.
        until: The last stage to run; None for all.
    """
    return check(scene_of(plan.recipe, until, {one.title for one in to_run}))
