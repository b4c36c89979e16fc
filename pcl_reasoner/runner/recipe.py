"""YAML -> a validated Recipe: which stages run, from which sources, with which settings.

`draft.py` merges the files and overrides. This module checks the types and values of every stage's
settings, and that every input of a stage is an existing stage or source. One error reports all
problems, before any heavy package is imported.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pcl_reasoner.core import artifact, files
from pcl_reasoner.core.errors import InputError, join_errors, shortened
from pcl_reasoner.core.schema import Launch, Source
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.core.validation import validation_messages
from pcl_reasoner.core.yaml_file import MAX_INTEGER
from pcl_reasoner.runner.draft import PAPER, Draft
from pcl_reasoner.runner.launch_file import load_launch
from pcl_reasoner.runner.stage_inputs import proof_of, stage_inputs, without_unasked
from pcl_reasoner.runner.stage_spec import StageSpec
from pcl_reasoner.stages import ALL_STAGES, PROOF_ROLE, STAGES, stage_hint

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""Allowed names of recipes, stages and sources: they are used in folder names and overrides.

A file's name has 255 characters at most, and some hold the names of a recipe and of a stage."""
_NAME_RULE = "letters, digits, _ and -, at most 100"


LAPTOP = "laptop.yaml"
"""The launch file that is used if none is given."""


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
    launch_file: str = LAPTOP
    profile_given: str | None = None
    seed_given: int | None = None
    origins: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(stage, key) -> what set the value, for messages; without values of the recipe itself."""
    overruled: Sequence[str] = ()
    """One sentence per value of a choice on the command line that did not count."""

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

    def arguments(self, path: str | None = None) -> list[str]:
        """The command-line arguments that load this recipe again.

        Args:
            path: How the recipe's file is named, unless it is shipped; None: by its full path.
        """
        is_shipped = self.path.parent == files.shipped("recipes")
        found = [self.path.stem if is_shipped else path or str(self.path.absolute())]
        if self.launch_file != LAPTOP:
            found += ["--launch", self.launch_file]
        if self.profile_given is not None:
            found += ["--profile", self.profile_given]
        if self.seed_given is not None:
            found += ["--seed", str(self.seed_given)]
        return [*found, *self.overrides]

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


def load_recipe(
    name: str,
    launch: str = LAPTOP,
    profile: str | None = None,
    overrides: tuple[str, ...] = (),
    seed: int | None = None,
    until: str | None = None,
    further: Callable[[Recipe], list[str]] = lambda recipe: [],
) -> Recipe:
    """Read a recipe with its profile, launch file and overrides, and check all of them.

    Args:
        name: A path, or the name of a shipped recipe; so is ``launch``.
        profile: Overlay to apply; ``paper``: none; None: that of the launch file, if there is one.
        overrides: ``stage.key=value``, ``choices.name=option``, ``sources.name.key=value``.
        seed: Replaces the recipe's seed.
        until: Check and return only this stage and those that it reads; None: all.
        further: Returns more errors, also of a recipe without its wrong stages; told with the rest.

    Raises:
        InputError: All problems of the launch file, or else of the recipe.
    """
    draft = Draft(files.find(name, "recipes"))
    launched = load_launch(launch)  # what a wrong launch file lacks would look like the recipe's
    chosen = profile or (launched.profile if draft.value["profiles"] else PAPER)
    draft.merge(chosen, launched, launch, overrides, seed)
    stages = _stages(draft, sources := _sources(draft), launched, until)
    draft.errors += [*_plain_errors(draft), *_reference_errors(draft, stages, sources)]
    recipe = Recipe(
        path=draft.path,
        name=str(draft.value.get("name", draft.path.stem)),
        title=str(draft.value.get("title", "")),
        profile=chosen,
        seed=draft.value["seed"],
        launch=launched,
        sources=sources,
        choices=draft.choices,
        stages=_in_order(stages, sources, draft.path),
        expect=draft.value["expect"],
        published=draft.value["published"],
        overrides=overrides,
        launch_file=launch,
        profile_given=profile,
        seed_given=seed,
        origins=draft.origins,
        overruled=draft.overruled,
    )
    if errors := draft.errors + further(recipe):
        raise join_errors(errors)
    return recipe


def load_other(recipe: Recipe, name: str) -> Recipe:
    """Load the recipe that a source names, with this recipe's profile, launch file and seed.

    Only the source's stage and the stages that it reads are checked and returned.

    Args:
        recipe: The recipe that has a source ``{recipe: …, stage: …}``. That source's ``recipe`` is
            a path relative to this recipe's folder or the working folder, or a shipped name.
        name: The name of the source.

    Raises:
        InputError: The other recipe is wrong, lacks the stage, or has the same name as this one.
    """
    source = recipe.sources[name]
    beside = recipe.path.parent / str(source.recipe)
    path = beside if files.is_file(beside) else source.recipe
    try:
        other = load_recipe(
            str(path),
            recipe.launch_file,
            recipe.profile_given,
            seed=recipe.seed_given,
            until=source.stage,
        )
    except InputError as error:
        raise InputError(f"{recipe.path}: sources.{name}: {error}") from error
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
        shown = shortened(repr(seed), 100)
        yield f"{draft.where('seed')}: seed: must be a whole number of at least 0, got {shown}."
    elif seed > MAX_INTEGER:
        yield f"{draft.where('seed')}: seed: must be a whole number of at most 64 bits."
    name = draft.value.get("name", draft.path.stem)
    # ``runs/hub`` has the files from the hub.
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "hub":
        shown = shortened(repr(name), 100)
        yield f"{draft.path}: name: must be {_NAME_RULE} (not 'hub'), got {shown}."
    for group in ("stages", "sources"):
        for key in draft.value[group]:
            if not _NAME.fullmatch(key):
                shown = shortened(key, 100)
                yield f"{draft.path}: {group}.{shown}: a name is {_NAME_RULE}."
    for group in ("expect", "published"):
        try:
            artifact.canonical_json(draft.value[group])
        except (TypeError, ValueError) as error:
            yield f"{draft.path}: {group}: has a value that JSON cannot represent ({error})."
    if not draft.value["stages"]:
        yield f"{draft.path}: stages: give at least one stage."


def _sources(draft: Draft) -> dict[str, Source]:
    """The sources that are right."""
    checked = {name: _source(draft, name, entry) for name, entry in draft.value["sources"].items()}
    return {name: source for name, source in checked.items() if source}


def _source(draft: Draft, name: str, value: Any) -> Source | None:
    """A checked source; None if it is wrong."""
    try:
        return Source.model_validate(value)
    except ValidationError as error:
        where = draft.where("sources", name)
        draft.errors += validation_messages(error, lambda key: where, f"sources.{name}: ", Source)
        return None


def _stages(
    draft: Draft, sources: dict[str, Source], launched: Launch, until: str | None
) -> dict[str, StageSpec]:
    """The stages that run: all, or ``until`` and those that it reads."""
    entries = draft.value["stages"]
    names = list(entries) if until is None else [until]
    if until is not None and until not in entries:
        draft.errors.append(
            f"{draft.path}: has no stage {shortened(until, 100)!r}.{stage_hint(until, entries)} "
            f"Stages: {', '.join(entries)}."
        )
        return {}
    specs = {}
    # The list grows while it is walked: every stage appends the stages that it reads.
    for name in names:
        entry = dict(entries[name])
        kind = entry.pop("stage", name)
        if not isinstance(kind, str) or kind not in STAGES:
            shown = shortened(repr(kind), 100)
            draft.errors.append(
                f"{draft.where(name, 'stage')}: stages.{name}: no such stage {shown}."
                f"{stage_hint(str(kind), STAGES)} Known: {', '.join(STAGES)}."
            )
            continue
        given = entry.pop("inputs", None)
        inputs, several = stage_inputs(draft, name, kind, given)
        read = entries if ALL_STAGES in inputs else _stages_read(inputs, sources)
        names += [other for other in read if other in entries and other not in names]
        # Some checks need more than the stage's own settings. A parallel layout must divide the
        # launch file's devices and existing weights; some settings need an input of a certain role.
        context = {
            "placement": launched.placement,
            "folders": _folders(inputs, sources),
            "roles": set(inputs),
        }
        config = _config(draft, name, kind, entry, context)
        if config is not None:
            inputs = without_unasked(inputs, given, config)
            if proof := proof_of(draft, name, inputs, config, _own_stages(sources)):
                inputs = {**inputs, PROOF_ROLE: [proof]}
                names += [proof] if proof not in names else []
            specs[name] = StageSpec(name, kind, config, inputs, several)
    return {name: specs[name] for name in entries if name in specs}


def _stages_read(inputs: dict[str, list[str]], sources: dict[str, Source]) -> set[str]:
    """Names of a stage's inputs; for a source that is a stage of this recipe, the stage's name."""
    stage_of = {name: source.stage for name, source in sources.items() if not source.recipe}
    return {stage_of.get(item) or item for items in inputs.values() for item in items}


def _own_stages(sources: dict[str, Source]) -> dict[str, str]:
    """Name of a source that is a whole stage of this recipe -> the stage."""
    own = {name: one.stage for name, one in sources.items() if not one.recipe and not one.path}
    return {name: stage for name, stage in own.items() if stage}


def _config(
    draft: Draft, name: str, kind: str, entry: dict[str, Any], context: dict[str, Any]
) -> StageConfig | None:
    """A stage's checked settings; None if they are wrong."""
    config_class = STAGES[kind].config_class()
    for key in ("seed", "max_malformed"):
        if key in config_class.model_fields and key in draft.value:
            entry.setdefault(key, draft.value[key])
    for key, value in entry.items():
        if _not_finite(value):
            draft.errors.append(
                f"{draft.where(name, key)}: stage {name}: {key}: must be finite, got {value!r}."
            )
    try:
        return config_class.model_validate(entry, context=context)
    except ValidationError as error:
        draft.errors += validation_messages(
            error,
            lambda key: _origins(draft, name, config_class, key),
            f"stage {name}: ",
            config_class,
        )
        return None


def _origins(draft: Draft, name: str, config_class: type[StageConfig], key: str) -> str:
    """Where a value comes from; for a rule's message, where all values that it names come from."""
    if " " not in key:
        return draft.where(name, key)
    named = [field for field in config_class.model_fields if re.search(rf"\b{field}\b", key)]
    origins = dict.fromkeys(draft.where(name, field) for field in named)
    return " and ".join(origins) or draft.where(name)


def _folders(inputs: dict[str, list[str]], sources: dict[str, Source]) -> dict[str, Path]:
    """Role -> path, for inputs that are sources with a path; other inputs may not exist yet."""
    return {
        role: files.expanded(source.path)
        for role, names in inputs.items()
        if (source := sources.get(names[0])) and source.path and not source.stage
    }


def _not_finite(value: Any) -> bool:
    """True if the value contains NaN or infinity: neither has a stable encoding."""
    if isinstance(value, dict | list):
        return any(map(_not_finite, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)


def _reference_errors(
    draft: Draft, stages: dict[str, StageSpec], sources: dict[str, Source]
) -> Iterator[str]:
    """Errors for inputs that are neither a stage nor a source, and for names that are both."""
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
    """Order stages so that each comes after those that it reads; else keep the recipe's order."""
    readers_of_all = {name for name, spec in stages.items() if ALL_STAGES in spec.inputs}
    reads = {name: _stages_read(spec.inputs, sources) for name, spec in stages.items()}
    reads |= dict.fromkeys(readers_of_all, set(stages) - readers_of_all)
    ordered: dict[str, StageSpec] = {}
    while len(ordered) < len(stages):
        left = [name for name in stages if name not in ordered]
        free = next((name for name in left if not reads[name] & set(left)), None)
        if free is None:
            raise InputError(f"{path}: stages {', '.join(left)} read one another in a circle.")
        ordered[free] = stages[free]
    return ordered
