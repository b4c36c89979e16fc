"""YAML -> a validated Recipe: which stages run, from which sources, with which settings.

`draft.py` merges the files and overrides. This module checks every stage's configuration against
its types, and every name that a stage reads against the existing stages and sources. One error
reports all problems, before any heavy package is imported.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pcl_reasoner.core import artifact, files
from pcl_reasoner.core.errors import InputError, join_errors
from pcl_reasoner.core.schema import Launch, Source
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.core.validation import validation_messages
from pcl_reasoner.runner.draft import PAPER, Draft
from pcl_reasoner.stages import ALL_STAGES, STAGES, stage_hint

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""Names become folder names and parts of overrides."""

_RESERVED_NAMES = {"hub"}
"""Names that ``runs`` uses for other folders."""


@dataclass(frozen=True)
class StageSpec:
    """One stage of a resolved recipe."""

    name: str
    type: str
    config: StageConfig
    inputs: dict[str, list[str]]
    """Role -> names of stages or sources; several only if the recipe gives the role as a list."""
    several: frozenset[str] = frozenset()
    """Roles that the recipe gives as a list."""


@dataclass(frozen=True)
class Recipe:
    """A recipe with all overlays and overrides applied and all values checked."""

    path: Path
    name: str
    title: str
    profile: str
    seed: int
    launch: Launch
    sources: dict[str, Source]
    choices: dict[str, str]
    stages: dict[str, StageSpec]
    expect: dict[str, Any] = field(default_factory=dict)
    published: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    launch_file: str = "laptop.yaml"
    seed_given: int | None = None

    def facts(self) -> dict[str, Any]:
        """The facts that the report shows, besides stages and sources."""
        return {
            "name": self.name,
            "title": self.title,
            "profile": self.profile,
            "launch": self.launch.title,
            "verified": self.launch.verified,
            "seed": self.seed,
            "choices": self.choices,
            "expect": self.expect,
            "published": self.published,
        }

    def resolved(self) -> dict[str, Any]:
        """The recipe as one mapping, for ``show``, ``diff`` and ``run --dry-run``."""
        return {
            "name": self.name,
            "title": self.title,
            "profile": self.profile,
            "seed": self.seed,
            "launch": self.launch.model_dump(exclude_defaults=True),
            "choices": self.choices,
            "sources": {
                name: source.model_dump(exclude_none=True) for name, source in self.sources.items()
            },
            "stages": {
                name: {
                    "stage": spec.type,
                    "inputs": {
                        role: names if role in spec.several else names[0]
                        for role, names in spec.inputs.items()
                    },
                    **spec.config.model_dump(mode="json"),
                }
                for name, spec in self.stages.items()
            },
            "expect": self.expect,
        }


def load_launch(name: str) -> Launch:
    """Read and check a launch file.

    Args:
        name: A path, or the name of a shipped launch file.
    """
    launch, _, errors = _read_launch(name)
    if launch is None or errors:
        raise join_errors(errors)
    return launch


def _read_launch(name: str) -> tuple[Launch | None, str, list[str]]:
    """Read a launch file.

    Returns:
        The launch file (None if it is wrong), the profile that it names in any case, all errors.
    """
    try:
        path = files.find(name, "launch")
        value = files.read_yaml(path)
    except InputError as error:
        return None, PAPER, [str(error)]
    errors: list[str] = []
    profile = str(value.get("profile", PAPER))
    hashed = value.get("hashed")
    for stage in hashed if isinstance(hashed, dict) else {}:
        if stage not in STAGES:
            hint = stage_hint(str(stage), STAGES)
            errors.append(f"{path}: hashed.{stage}: no such stage.{hint}")
    try:
        return Launch.model_validate(value), profile, errors
    except ValidationError as error:
        errors += validation_messages(error, lambda key: str(path), "", Launch)
        return None, profile, errors


def load_recipe(
    name: str,
    launch: str = "laptop.yaml",
    profile: str | None = None,
    overrides: tuple[str, ...] = (),
    seed: int | None = None,
) -> Recipe:
    """Read a recipe with its profile, launch file and overrides, and check all of them.

    Args:
        name: A path, or the name of a shipped recipe.
        launch: A path, or the name of a shipped launch file.
        profile: Overlay to apply; ``paper``: no overlay; None: the profile of the launch file.
        overrides: ``stage.key=value``, ``choices.name=option``, ``sources.name.key=value``.
        seed: Replaces the recipe's seed.

    Raises:
        InputError: All problems, in one error.
    """
    draft = Draft(files.find(name, "recipes"))
    launched, its_profile, launch_errors = _read_launch(launch)
    draft.errors += launch_errors
    chosen = profile or its_profile
    draft.read_overlay(chosen)
    draft.apply_overrides_of_choices(overrides)
    draft.apply_choices()
    draft.apply_overlay()
    draft.apply_launch(launched.hashed if launched else {}, launch)
    draft.apply_overrides(overrides)
    draft.value.setdefault("seed", 0)
    if seed is not None:
        draft.value["seed"] = seed
    sources = _sources(draft)
    stages = _stages(draft, sources, launched)
    draft.errors += [*_plain_errors(draft), *_reference_errors(draft, stages, sources)]
    if draft.errors or launched is None:
        raise join_errors(draft.errors)
    value = draft.value
    return Recipe(
        path=draft.path,
        name=value.get("name", draft.path.stem),
        title=str(value.get("title", "")),
        profile=chosen,
        seed=value["seed"],
        launch=launched,
        sources=sources,
        choices=draft.choices,
        stages=_in_order(stages, sources, draft.path),
        expect=value["expect"],
        published=value["published"],
        overrides=overrides,
        launch_file=launch,
        seed_given=seed,
    )


def load_other(recipe: Recipe, name: str) -> Recipe:
    """Load another recipe that this one reads a stage of, with the same profile, launch and seed.

    Args:
        recipe: The recipe that has a source ``{recipe: name, stage: …}``.
        name: A path relative to that recipe's folder, another path, or a shipped recipe's name.

    Raises:
        InputError: The other recipe is wrong, or has the same name as this one.
    """
    beside = recipe.path.parent / name
    path = beside if beside.is_file() else Path(name)
    other = load_recipe(str(path), recipe.launch_file, recipe.profile, seed=recipe.seed_given)
    if other.name == recipe.name:
        raise InputError(
            f"{recipe.path}: takes a stage from {other.path}, which has the same name "
            f"{other.name!r}: their runs would be confused. Rename one."
        )
    return other


def _plain_errors(draft: Draft) -> Iterator[str]:
    """Errors in names and in those top-level keys that no other function checks."""
    seed = draft.value["seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        yield f"{draft.where('seed')}: seed: must be a whole number of at least 0, got {seed!r}."
    name = draft.value.get("name", draft.path.stem)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED_NAMES:
        yield f"{draft.path}: name: must be letters, digits, _ and - (not 'hub'), got {name!r}."
    for group in ("stages", "sources"):
        for key in draft.value[group]:
            if not _NAME.fullmatch(key):
                yield f"{draft.path}: {group}.{key}: a name is letters, digits, _ and -."
    for group in ("expect", "published"):
        try:
            artifact.canonical_json(draft.value[group])
        except (TypeError, ValueError) as error:
            yield f"{draft.path}: {group}: has a value that JSON cannot represent ({error})."
    if not draft.value["stages"]:
        yield f"{draft.path}: stages: give at least one stage."


def _sources(draft: Draft) -> dict[str, Source]:
    found = {}
    for name, value in draft.value["sources"].items():
        where = draft.where("sources", name)
        try:
            found[name] = Source.model_validate(value)
        except ValidationError as error:
            prefix = f"sources.{name}: "
            draft.errors += validation_messages(error, lambda key: where, prefix, Source)  # noqa: B023
    return found


def _stages(
    draft: Draft, sources: dict[str, Source], launched: Launch | None
) -> dict[str, StageSpec]:
    entries = draft.value["stages"].items()
    specs = [_stage(draft, name, dict(entry), sources, launched) for name, entry in entries]
    return {spec.name: spec for spec in specs if spec is not None}


def _stage(
    draft: Draft,
    name: str,
    entry: dict[str, Any],
    sources: dict[str, Source],
    launched: Launch | None,
) -> StageSpec | None:
    kind = entry.pop("stage", name)
    if kind not in STAGES:
        draft.errors.append(
            f"{draft.where(name, 'stage')}: stages.{name}: no such stage {kind!r}."
            f"{stage_hint(str(kind), STAGES)} Known: {', '.join(STAGES)}."
        )
        return None
    inputs, several = _inputs(draft, name, kind, entry.pop("inputs", None))
    config_class = STAGES[kind].config_class()
    for key in ("seed", "max_malformed"):
        if key in config_class.model_fields and key in draft.value:
            entry.setdefault(key, draft.value[key])
    for key, value in entry.items():
        if _not_finite(value):
            draft.errors.append(
                f"{draft.where(name, key)}: stage {name}: {key}: must be finite, got {value!r}."
            )
    # Some checks need more than the stage's own settings. A parallel layout must divide the launch
    # file's devices and existing weights, and some settings need an input of a certain role.
    validation_context = {
        "placement": launched.placement if launched else None,
        "folders": _folders(inputs, sources),
        "roles": set(inputs),
    }
    try:
        config = config_class.model_validate(entry, context=validation_context)
    except ValidationError as error:
        draft.errors += validation_messages(
            error, lambda key: draft.where(name, key), f"stage {name}: ", config_class
        )
        return None
    return StageSpec(name, kind, config, inputs, several)


def _folders(inputs: dict[str, list[str]], sources: dict[str, Source]) -> dict[str, Path]:
    """Role -> folder of an input that is a path. Artifacts and hub folders may not exist yet."""
    named = {role: sources[names[0]] for role, names in inputs.items() if names[0] in sources}
    return {
        role: Path(source.path).expanduser()
        for role, source in named.items()
        if source.path and not source.stage
    }


def _not_finite(value: Any) -> bool:
    """True if the value contains NaN or infinity: neither has a stable encoding."""
    if isinstance(value, dict | list):
        return any(map(_not_finite, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)


def _inputs(
    draft: Draft, name: str, kind: str, entry: Any
) -> tuple[dict[str, list[str]], frozenset[str]]:
    """Role -> names, and the roles that the recipe gives as lists."""
    where = f"{draft.where(name, 'inputs')}: stages.{name}.inputs"
    if entry is not None and not isinstance(entry, dict):
        draft.errors.append(f"{where}: must be a mapping of roles to names, got {entry!r}.")
    given: dict[str, Any] = entry if isinstance(entry, dict) else {}
    defaults = {role.rstrip("?"): value for role, value in STAGES[kind].inputs.items()}
    optional = {role.rstrip("?") for role in STAGES[kind].inputs if role.endswith("?")}
    for role in given:
        if role not in defaults:
            hint = files.nearest(str(role), defaults)
            draft.errors.append(
                f"{where}.{role}: unknown role.{hint} Roles: {', '.join(defaults)}."
            )
    found: dict[str, list[str]] = {}
    for role, default in defaults.items():
        value: Any = given.get(role, None if role in optional else default)
        names = value if isinstance(value, list) else [value]
        if value is None and role in optional:
            continue
        if not names or not all(isinstance(item, str) for item in names):
            draft.errors.append(
                f"{where}.{role}: must be the name of a stage or a source, or a list of names, "
                f"got {value!r}."
            )
        else:
            found[role] = names
    return found, frozenset(role for role in found if isinstance(given.get(role), list))


def _reference_errors(
    draft: Draft, stages: dict[str, StageSpec], sources: dict[str, Source]
) -> Iterator[str]:
    """Errors for names that a stage reads and that are neither a stage nor a source, or both."""
    stage_names, source_names = list(draft.value["stages"]), list(draft.value["sources"])
    for name in sorted(set(stage_names) & set(source_names)):
        yield f"{draft.path}: {name}: is the name of a stage and of a source; rename one."
    for spec in stages.values():
        where = draft.where(spec.name, "inputs")
        for role, names in spec.inputs.items():
            for reference in names:
                if reference not in (ALL_STAGES, *stage_names, *source_names):
                    hint = files.nearest(reference, stage_names + source_names)
                    yield (
                        f"{where}: stages.{spec.name}.inputs.{role}: {reference!r} is neither a "
                        f"stage nor a source.{hint}"
                    )
    for name, source in sources.items():
        if source.stage and not source.recipe and source.stage not in stage_names:
            hint = stage_hint(source.stage, stage_names)
            where = draft.where("sources", name)
            yield f"{where}: sources.{name}.stage: no such stage {source.stage!r}.{hint}"


def _in_order(
    stages: dict[str, StageSpec], sources: dict[str, Source], path: Path
) -> dict[str, StageSpec]:
    """Order stages so that each comes after those that it reads; ties keep the recipe's order."""
    stage_of = {name: source.stage for name, source in sources.items() if not source.recipe}
    reads = {}
    readers_of_all = {name for name, spec in stages.items() if ALL_STAGES in spec.inputs}
    for name, spec in stages.items():
        read = {stage_of.get(item) or item for items in spec.inputs.values() for item in items}
        reads[name] = set(stages) - readers_of_all if name in readers_of_all else read
    ordered: dict[str, StageSpec] = {}
    while len(ordered) < len(stages):
        left = [name for name in stages if name not in ordered]
        free = next((name for name in left if not reads[name] & set(left)), None)
        if free is None:
            raise InputError(f"{path}: stages {', '.join(left)} read one another in a circle.")
        ordered[free] = stages[free]
    return ordered
