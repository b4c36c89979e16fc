"""The plan of a run: every stage with its fingerprint and folder, and whether it has to run.

All fingerprints are known before anything runs. A stage's fingerprint is the hash of its type,
version and configuration, of the content of files that the configuration names, and of the
fingerprints of its inputs, without a proof of the servers. The report's fingerprint also includes
the recipe's facts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.core.schema import Source
from pcl_reasoner.runner import sources
from pcl_reasoner.runner.finished import (
    PlannedInput,
    finished_proof,
    manifest_of,
    why_not_done,
)
from pcl_reasoner.runner.recipe import Recipe, load_other
from pcl_reasoner.runner.stage_inputs import asked_role
from pcl_reasoner.runner.stage_spec import StageSpec
from pcl_reasoner.stages import ALL_STAGES, PROOF_ROLE, STAGES

FINGERPRINT_DIGITS = 8
MAX_RECIPES = 50
"""Recipes that one recipe may read, directly and through others; shipped ones read one."""


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
        """The stage's title, ``recipe/stage``."""
        return f"{self.recipe.name}/{self.spec.name}"

    @property
    def partial(self) -> Path:
        """The folder that the artifact is written in until it is complete."""
        return self.folder.with_name(f"{self.folder.name}.partial")

    @property
    def done(self) -> bool:
        """True if a complete artifact of this fingerprint and of the present inputs exists."""
        return self.why_not_done() is None

    def why_not_done(self) -> str | None:
        """Return why the stage has to run, as far as its folder shows it; None: it is done."""
        return why_not_done(self.folder, self.fingerprint, self.inputs)

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of a finished artifact of this fingerprint; None if there is none."""
        return manifest_of(self.folder, self.fingerprint)

    def as_input(self) -> PlannedInput:
        """The stage's artifact as the input of another stage."""
        return PlannedInput(self.fingerprint, self.folder, self.title, self.folder)


def _identity(
    recipe: Recipe, spec: StageSpec, inputs: dict[str, PlannedInput], hashes: FileHashes
) -> dict[str, Any]:
    named = spec.config.named_files()
    contents = {}
    for name, path in named.items():
        try:
            contents[name] = sources.content_of(path, hashes)
        except InputError as error:
            raise InputError(f"{recipe.path}: stage {spec.name}: {name}: {error}") from error
    # Only the report shows the recipe's facts, so only the report is rebuilt when they change.
    facts = {"recipe": recipe.facts()} if ALL_STAGES in spec.inputs else {}
    return {
        **facts,
        **({"files": contents} if contents else {}),
        "stage": spec.type,
        "version": STAGES[spec.type].version,
        "config": spec.config.hashed(),
        "inputs": {role: item.fingerprint for role, item in inputs.items() if role != PROOF_ROLE},
    }


@dataclass
class Plan:
    """A plan: stages in order, sources that are missing, sources to fetch.

    Args:
        recipe: The recipe to run. In ``stages``, its stages come after those of other recipes.
        runs: Folder of all runs, absolute.
        hashes: Remembered hashes of files.
    """

    recipe: Recipe
    runs: Path
    hashes: FileHashes
    stages: list[PlannedStage] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    to_fetch: dict[Path, tuple[str, Source]] = field(default_factory=dict)

    def report_file(self) -> Path | None:
        """The stages' last HTML page, which may not exist yet; None if no stage writes a page."""
        pages = [one.folder / one.spec.config.page for one in self.stages if one.spec.config.page]
        return pages[-1] if pages else None

    def tokenizer_file(self, planned: PlannedStage) -> Path:
        """The tokenizer file of this stage's policy, or of the nearest earlier stage's policy.

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


def make_plan(
    recipe: Recipe, runs: Path, until: str | None = None, trust_hashes: bool = True
) -> Plan:
    """Plan a run of a recipe, with the stages of other recipes that it reads.

    Args:
        recipe: The recipe.
        runs: Folder of all runs.
        until: Last stage to run; all stages when None.
        trust_hashes: False: read every file again, also those that have not changed.
    """
    # Absolute, because a stage may start processes in other working directories.
    runs = runs.expanduser().absolute()
    hashes = FileHashes(runs / ".hashes.json", trust_hashes)
    planner = _Planner(recipe, runs, hashes)
    for name in recipe.stages if until is None else [until]:
        planner.stage(recipe, name)
    # Another recipe's stages never read this recipe's, so all of them can come first.
    planner.plan.stages.sort(key=lambda planned: planned.recipe.name == recipe.name)
    hashes.save()
    return planner.plan


class _Planner:
    """Plans each stage once, after all stages that it reads, including those of other recipes."""

    def __init__(self, recipe: Recipe, runs: Path, hashes: FileHashes) -> None:
        self.plan = Plan(recipe, runs, hashes)
        self.hashes = hashes
        self.recipes = {recipe.name: recipe}
        self.walking: list[str] = []

    def stage(self, recipe: Recipe, name: str) -> PlannedStage:
        """Plan a stage, after all stages that it reads, and return it."""
        title = f"{recipe.name}/{name}"
        if known := [planned for planned in self.plan.stages if planned.title == title]:
            return known[0]
        if title in self.walking:
            circle = " -> ".join([*self.walking, title])
            raise InputError(f"{recipe.path}: stages read one another in a circle: {circle}")
        self.walking.append(title)
        spec = recipe.stages[name]
        inputs = self._with_proof(spec, dict(self._inputs(recipe, spec)))
        self.walking.pop()
        identity = _identity(recipe, spec, inputs, self.hashes)
        digest = artifact.fingerprint(identity)
        folder = self.plan.runs / recipe.name / f"{name}-{digest[:FINGERPRINT_DIGITS]}"
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

    def _with_proof(
        self, spec: StageSpec, inputs: dict[str, PlannedInput]
    ) -> dict[str, PlannedInput]:
        """Add a finished proof of the model that the stage asks, e.g. of another recipe."""
        role = asked_role(spec.type, spec.inputs, spec.config)
        if role is None or PROOF_ROLE in inputs:
            return inputs
        found = finished_proof(inputs[role], self.hashes)
        return {**inputs, PROOF_ROLE: found} if found else inputs

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
        owner = self._other_recipe(recipe, name) if source.recipe else recipe
        artifact_input = self.stage(owner, str(source.stage)).as_input()
        if not source.path:
            return artifact_input
        digest = f"{artifact_input.fingerprint}/{source.path}"
        path = artifact_input.path / source.path
        return replace(artifact_input, fingerprint=digest, path=path)

    def _other_recipe(self, recipe: Recipe, name: str) -> Recipe:
        other = load_other(recipe, name)
        known = self.recipes.setdefault(other.name, other)
        if len(self.recipes) > MAX_RECIPES:
            raise _too_many(self.plan.recipe)
        if known.path.resolve() != other.path.resolve():
            raise InputError(
                f"{known.path} and {other.path} have the same name {other.name!r}: their runs "
                "would be confused. Rename one."
            )
        return known if recipe.sources[name].stage in known.stages else other

    def _outside_source(self, name: str, source: Source) -> PlannedInput:
        try:
            digest = sources.fingerprint_of(source, self.hashes)
            problem = None if digest else sources.missing(name, source)
        except InputError as error:
            digest, problem = None, f"source {name}: {error}"
        if problem and problem not in self.plan.missing:
            self.plan.missing.append(problem)
        if source.hub:
            path = sources.hub_folder(source, self.plan.runs)
            self.plan.to_fetch[path] = (name, source)
        elif digest is None:
            path = sources.path_of(source)
        else:
            path = sources.used_part(source, self.plan.runs, digest)
        return PlannedInput(digest or "missing", path, name)


def check_others(recipe: Recipe) -> list[str]:
    """Return the errors in other recipes whose stages this recipe reads, directly or not."""
    problems: list[str] = []
    recipes, checked = [recipe], {(recipe.path.resolve(), "")}
    # The list grows while it is walked. A recipe that many sources name is checked once.
    for reader in recipes:
        if len({path for path, _ in checked}) > MAX_RECIPES:
            return [*problems, str(_too_many(recipe))]
        for name, source in reader.sources.items():
            if source.recipe is None:
                continue
            try:
                other = load_other(reader, name)
            except InputError as error:
                problems.append(str(error))
                continue
            if (key := (other.path.resolve(), str(source.stage))) not in checked:
                checked.add(key)
                recipes.append(other)
    return list(dict.fromkeys(problems))


def _too_many(recipe: Recipe) -> InputError:
    return InputError(
        f"{recipe.path}: sources: reads more than {MAX_RECIPES} other recipes, directly and "
        "through others."
    )


def newest_other(planned: PlannedStage) -> dict[str, Any] | None:
    """The manifest of the newest finished artifact of this stage with other settings or inputs."""
    others = [
        (path.stat().st_mtime, manifest)
        for path in planned.folder.parent.glob(f"{planned.spec.name}-*")
        if path != planned.folder
        and not path.name.endswith(".partial")
        and (manifest := artifact.read_manifest(path)) is not None
        and manifest.get("name") == planned.spec.name
        and "identity" in manifest
    ]
    return max(others, key=lambda item: item[0])[1] if others else None


def state(planned: PlannedStage) -> str:
    """Return ``done``, or ``to run: `` and the reason.

    Usually the reason is the difference from the stage's newest finished artifact: settings, inputs
    or code that changed.
    """
    reason = planned.why_not_done()
    if reason is None:
        return "done"
    if planned.folder.is_dir():
        return f"to run: {reason}"
    before = newest_other(planned)
    resumes = planned.partial.is_dir() and STAGES[planned.spec.type].resumable
    prefix = "to run: was interrupted, resumes; " if resumes else "to run: "
    if before is None:
        return prefix + "never run with these settings"
    return prefix + "; ".join(_differences(before["identity"], planned))


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
        field_name = key.partition(".")[0]
        names = new["config"][field_name]
        if old["config"].get(field_name) == names and old.get("files", {}).get(key) != content:
            yield f"the content of {field_name} ({names}) changed"
    for role in sorted(set(old["inputs"]) | set(new["inputs"])):
        if old["inputs"].get(role) != new["inputs"].get(role):
            item = planned.inputs.get(role)
            yield f"input {role} changed ({item.origin})" if item else f"input {role} was removed"
