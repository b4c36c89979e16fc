"""The plan of a run: every stage with its fingerprint and its folder, and why it has to run.

All fingerprints are known before anything runs. A stage's fingerprint is the hash of its type,
version, configuration, the content of the files that it names, and its inputs' fingerprints.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.schema import Source
from pcl_reasoner.runner import sources
from pcl_reasoner.runner.recipe import Recipe, StageSpec, load_other
from pcl_reasoner.stages import ALL_STAGES, STAGES

FINGERPRINT_DIGITS = 8


@dataclass(frozen=True)
class PlannedInput:
    """One input of a planned stage.

    Args:
        fingerprint: Fingerprint of the artifact or source.
        path: Where the input is or will be.
        origin: ``recipe/stage`` or the source's name, for messages.
    """

    fingerprint: str
    path: Path
    origin: str


@dataclass(frozen=True)
class PlannedStage:
    """One stage of a plan."""

    recipe: Recipe
    spec: StageSpec
    inputs: dict[str, PlannedInput]
    fingerprint: str
    folder: Path
    identity: dict[str, Any]
    """The values that the fingerprint is computed from."""

    @property
    def title(self) -> str:
        """``recipe/stage``."""
        return f"{self.recipe.name}/{self.spec.name}"

    @property
    def partial(self) -> Path:
        """The folder that the artifact is written in until it is complete."""
        return self.folder.with_name(f"{self.folder.name}.partial")

    @property
    def done(self) -> bool:
        """True if a complete artifact with this fingerprint exists."""
        manifest = artifact.read_manifest(self.folder)
        return manifest is not None and manifest.get("fingerprint") == self.fingerprint

    def as_input(self) -> PlannedInput:
        """The stage's artifact as the input of another stage."""
        return PlannedInput(self.fingerprint, self.folder, self.title)


def _identity(
    recipe: Recipe, spec: StageSpec, inputs: dict[str, PlannedInput], memory: sources.HashCache
) -> dict[str, Any]:
    named = spec.config.named_files()
    contents = {name: sources.content_of(path, memory) for name, path in named.items()}
    # Only the report shows the recipe's facts, so only the report is rebuilt when they change.
    facts = {"recipe": recipe.facts()} if ALL_STAGES in spec.inputs else {}
    return {
        **facts,
        **({"files": contents} if contents else {}),
        "stage": spec.type,
        "version": STAGES[spec.type].version,
        "config": spec.config.hashed(),
        "inputs": {role: item.fingerprint for role, item in inputs.items()},
    }


@dataclass
class Plan:
    """A plan: stages in order, sources that are missing, sources to fetch.

    Args:
        recipe: The recipe to run. The stages of other recipes that it reads come first.
        runs: Folder of all runs, absolute.
    """

    recipe: Recipe
    runs: Path
    stages: list[PlannedStage] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    to_fetch: dict[Path, tuple[str, Source]] = field(default_factory=dict)

    def find(self, recipe: str, stage: str) -> PlannedStage | None:
        """The planned stage of that recipe and name; None if there is none."""
        title = f"{recipe}/{stage}"
        return next((planned for planned in self.stages if planned.title == title), None)

    def report_file(self) -> Path | None:
        """The last page that a stage writes for a person, whether or not it exists yet."""
        pages = [one.folder / one.spec.config.page for one in self.stages if one.spec.config.page]
        return pages[-1] if pages else None

    def tokenizer_file(self, planned: PlannedStage) -> Path:
        """The tokenizer of the policy that this stage, or the nearest stage before it, reads.

        Raises:
            InputError: None of these stages reads a policy.
        """
        by_folder = {stage.folder: stage for stage in self.stages}
        stages = [planned]
        # The list grows while it is walked: every stage appends the stages that it reads.
        for stage in stages:
            if "policy" in stage.inputs:
                return stage.inputs["policy"].path / "tokenizer.json"
            paths = [item.path for item in stage.inputs.values()]
            stages += [by_folder[path] for path in paths if path in by_folder]
        raise InputError(f"stage {planned.title}: neither it nor a stage before it reads a policy.")


def make_plan(recipe: Recipe, runs: Path, until: str | None = None) -> Plan:
    """Plan a run of a recipe, with the stages of other recipes that it reads.

    Args:
        recipe: The recipe.
        runs: Folder of all runs.
        until: Last stage to run; all stages when None.
    """
    # Absolute, because a stage may start processes in other working directories.
    runs = runs.expanduser().absolute()
    memory = sources.HashCache(runs / ".hashes.json")
    planner = _Planner(recipe, runs, memory)
    if until is not None and until not in recipe.stages:
        raise InputError(
            f"{recipe.path}: no such stage {until!r}.{nearest(until, recipe.stages)}"
            f" Stages: {', '.join(recipe.stages)}."
        )
    for name in recipe.stages if until is None else [until]:
        planner.stage(recipe, name)
    # Another recipe's stages never read this recipe's, so all of them can come first.
    planner.plan.stages.sort(key=lambda planned: planned.recipe.name == recipe.name)
    memory.save()
    return planner.plan


class _Planner:
    """Walks recipes depth first and plans each stage once."""

    def __init__(self, recipe: Recipe, runs: Path, memory: sources.HashCache) -> None:
        self.plan = Plan(recipe, runs)
        self.runs = runs
        self.memory = memory
        self.recipes = {recipe.name: recipe}
        self.walking: list[str] = []

    def stage(self, recipe: Recipe, name: str) -> PlannedStage:
        """Plan the stages that a stage reads, then the stage itself."""
        known = self.plan.find(recipe.name, name)
        if known is not None:
            return known
        title = f"{recipe.name}/{name}"
        if title in self.walking:
            circle = " -> ".join([*self.walking, title])
            raise InputError(f"{recipe.path}: stages read one another in a circle: {circle}")
        self.walking.append(title)
        spec = recipe.stages[name]
        inputs = dict(self._inputs(recipe, spec))
        self.walking.pop()
        identity = _identity(recipe, spec, inputs, self.memory)
        digest = artifact.fingerprint(identity)
        folder = self.runs / recipe.name / f"{name}-{digest[:FINGERPRINT_DIGITS]}"
        planned = PlannedStage(recipe, spec, inputs, digest, folder, identity)
        self.plan.stages.append(planned)
        return planned

    def _inputs(self, recipe: Recipe, spec: StageSpec) -> Iterable[tuple[str, PlannedInput]]:
        for role, names in spec.inputs.items():
            if role == ALL_STAGES:
                yield from self._all_before(recipe, spec)
                continue
            for name in names:
                key = f"{role}.{name}" if role in spec.several else role
                yield key, self._input(recipe, name)

    def _all_before(self, recipe: Recipe, spec: StageSpec) -> Iterable[tuple[str, PlannedInput]]:
        for name, other in recipe.stages.items():
            if ALL_STAGES not in other.inputs:
                self.stage(recipe, name)
        # Other recipes first, as in the plan.
        stages = sorted(self.plan.stages, key=lambda planned: planned.recipe.name == recipe.name)
        for planned in stages:
            if ALL_STAGES not in planned.spec.inputs:
                yield planned.title, planned.as_input()

    def _input(self, recipe: Recipe, name: str) -> PlannedInput:
        if name in recipe.stages:
            return self.stage(recipe, name).as_input()
        source = recipe.sources[name]
        if source.stage:
            return self._stage_source(recipe, source, name)
        return self._outside_source(name, source)

    def _stage_source(self, recipe: Recipe, source: Source, name: str) -> PlannedInput:
        owner = self._recipe(recipe, source.recipe) if source.recipe else recipe
        if problem := _no_such_stage(recipe, owner, name, source):
            raise InputError(problem)
        artifact_input = self.stage(owner, str(source.stage)).as_input()
        if not source.path:
            return artifact_input
        digest = f"{artifact_input.fingerprint}/{source.path}"
        return PlannedInput(digest, artifact_input.path / source.path, artifact_input.origin)

    def _recipe(self, recipe: Recipe, name: str) -> Recipe:
        other = load_other(recipe, name)
        known = self.recipes.setdefault(other.name, other)
        if known.path.resolve() != other.path.resolve():
            raise InputError(
                f"{known.path} and {other.path} have the same name {other.name!r}: their runs "
                "would be confused. Rename one."
            )
        return known

    def _outside_source(self, name: str, source: Source) -> PlannedInput:
        if source.hub:
            folder = sources.hub_folder(source, self.runs)
            self.plan.to_fetch[folder] = (name, source)
        else:
            folder = Path(str(source.path)).expanduser().absolute()
        digest = sources.fingerprint_of(source, self.memory)
        if digest is None:
            problem = sources.missing(name, source)
            if problem and problem not in self.plan.missing:
                self.plan.missing.append(problem)
            digest = "missing"
        return PlannedInput(digest, folder, name)


def check_others(recipe: Recipe, readers: tuple[str, ...] = ()) -> list[str]:
    """Errors in the recipes that this one reads stages from, and in the names of those stages.

    Args:
        recipe: The recipe.
        readers: Names of the recipes that led to this one.
    """
    if recipe.name in readers:
        return []
    problems = []
    for name, source in recipe.sources.items():
        if source.recipe is None:
            continue
        try:
            other = load_other(recipe, source.recipe)
        except InputError as error:
            problems.append(str(error))
            continue
        if problem := _no_such_stage(recipe, other, name, source):
            problems.append(problem)
        problems += check_others(other, (*readers, recipe.name))
    return problems


def _no_such_stage(recipe: Recipe, owner: Recipe, name: str, source: Source) -> str | None:
    if source.stage in owner.stages:
        return None
    return (
        f"{recipe.path}: sources.{name}: {owner.path} has no stage {source.stage!r}."
        f"{nearest(str(source.stage), owner.stages)} Stages: {', '.join(owner.stages)}."
    )


def why(planned: PlannedStage) -> str:
    """Why a stage is done or has to run, in words.

    A stage that has to run is compared with its newest finished artifact of other settings.
    """
    if planned.done:
        return "done"
    if planned.folder.is_dir():
        return "its folder has no complete manifest of these settings"
    others = [
        (path.stat().st_mtime, manifest)
        for path in planned.folder.parent.glob(f"{planned.spec.name}-*")
        if not path.name.endswith(".partial")
        and (manifest := artifact.read_manifest(path)) is not None
        and manifest.get("name") == planned.spec.name
        and "identity" in manifest
    ]
    resumes = planned.partial.is_dir() and STAGES[planned.spec.type].resumable
    prefix = "was interrupted, resumes; " if resumes else ""
    if not others:
        return prefix + "never run with these settings"
    newest = max(others, key=lambda item: item[0])[1]
    return prefix + "; ".join(_differences(newest["identity"], planned))


def _differences(old: dict[str, Any], planned: PlannedStage) -> Iterable[str]:
    new = planned.identity
    if old["version"] != new["version"]:
        yield f"the stage's code is version {new['version']}, was {old['version']}"
    for key, now in new.get("recipe", {}).items():
        if old.get("recipe", {}).get(key) != now:
            yield f"the recipe's {key} changed"
    for key in sorted(set(old["config"]) | set(new["config"])):
        before, now = old["config"].get(key), new["config"].get(key)
        if before != now:
            yield f"{key} is {now!r}, was {before!r}"
    for key, content in new.get("files", {}).items():
        same_name = old["config"].get(key) == new["config"][key]
        if same_name and old.get("files", {}).get(key) != content:
            yield f"the content of {key} ({new['config'][key]}) changed"
    for role in sorted(set(old["inputs"]) | set(new["inputs"])):
        if old["inputs"].get(role) != new["inputs"].get(role):
            item = planned.inputs.get(role)
            yield f"input {role} changed ({item.origin})" if item else f"input {role} was removed"
