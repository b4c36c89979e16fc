"""Evaluates checkpoints outside a run: a folder of weights, or a recipe's exported model.

    argument "v15_opg"           the model and settings of that recipe's last evaluate stage
    argument "step800=/w/800"    a folder, shown as step800; the options give its settings

Responses are kept under a hash of model, benchmarks and settings. A second call grades them
again without sampling, and an interrupted call resumes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pcl_reasoner.core import artifact
from pcl_reasoner.core.damage import changed_files
from pcl_reasoner.core.errors import InputError, join_errors, shortened
from pcl_reasoner.core.files import expanded, is_file
from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.core.schema import Placement, Source
from pcl_reasoner.core.stage import Progress, StageContext
from pcl_reasoner.core.validation import validation_messages
from pcl_reasoner.core.yaml_file import parse
from pcl_reasoner.evaluate.stage import EvaluateConfig, evaluate
from pcl_reasoner.runner.failed_graphs import failed_graphs_in
from pcl_reasoner.runner.plan import FINGERPRINT_DIGITS, make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.runner.sources import content_of, fetch
from pcl_reasoner.stages import inputs_of

DEFAULT_FILES = {"aime24": "data/aime_2024.jsonl", "aime25": "data/aime_2025.jsonl"}
"""Files in which the recipes expect the questions. No question text is shipped."""


@dataclass(frozen=True)
class Checkpoint:
    """A model to evaluate.

    Args:
        name: The model's name in the results.
        model: The model's Hugging Face folder.
        config: Settings of the stage ``evaluate``.
    """

    name: str
    model: Path
    config: EvaluateConfig


def model_of(argument: str) -> tuple[str, Path] | None:
    """Read ``name=folder`` or ``folder`` as (name, folder); None if folder lacks config.json."""
    name, equals, folder = argument.partition("=")
    path = expanded(folder if equals else argument)
    if not is_file(path / "config.json"):
        return None
    return (name if equals else path.resolve().name), path


def recipe_inputs(
    name: str, runs: Path, **where: Any
) -> tuple[Path, EvaluateConfig, dict[str, Path]]:
    """Return the model folder, settings and benchmark paths of a recipe's last evaluate stage.

    Args:
        name: A recipe, as for load_recipe.
        runs: Folder of all runs.
        where: Further arguments of load_recipe: launch, profile and seed.

    Raises:
        InputError: The recipe has no stage ``evaluate``, or the model does not exist yet.
    """
    recipe = load_recipe(name, **where)
    evaluations = [
        (stage.inputs, stage.spec.config)
        for stage in make_plan(recipe, runs).stages
        if isinstance(stage.spec.config, EvaluateConfig) and stage.recipe.name == recipe.name
    ]
    if not evaluations:
        raise InputError(f"recipe {name} has no stage evaluate. Give a folder with weights.")
    inputs, config = evaluations[-1]
    paths = {role: planned.path for role, planned in inputs.items()}
    if not (paths["model"] / "config.json").is_file():
        origin = inputs["model"].origin
        raise InputError(
            f"recipe {name}: its model does not exist yet ({origin}). Make it first: "
            f"pclr-ms run {name} --until {origin.rpartition('/')[2]}"
        )
    return paths["model"], config, inputs_of(paths, "benchmark")


def with_settings(config: EvaluateConfig, settings: Sequence[str], n: int | None) -> EvaluateConfig:
    """Return a configuration changed by ``key=value`` settings and by ``n``, if it is given.

    Raises:
        InputError: Keys are unknown or values are not allowed; one error reports all of them.
    """
    values = {}
    for setting in settings:
        key, _, text = setting.partition("=")
        try:
            values[key] = parse(text)
        except ValueError as error:
            raise InputError(f"--set {shortened(setting, 100)}: the value is {error}.") from error
    if n is not None:
        values["n"] = n
    try:
        return EvaluateConfig(**{**config.model_dump(), **values})
    except ValidationError as error:
        messages = validation_messages(error, lambda _: "--set", "", EvaluateConfig)
        raise join_errors(list(messages)) from error


def benchmark_files(names: Sequence[str], runs: Path) -> dict[str, Path]:
    """Find the files of benchmarks; those in hub repositories are downloaded.

    Args:
        names: ``path``, ``name=path``, ``name=hub:OWNER/NAME@REVISION`` (followed by ``:FILES`` if
            not all files are wanted), ``aime24`` or ``aime25`` (DEFAULT_FILES).
        runs: Folder of all runs; files fetched from the hub are kept in it.

    Returns:
        Name -> file or folder.

    Raises:
        InputError: A path does not exist (question text is not shipped), or a hub name is
            incomplete.
        StageError: The hub does not answer, or lacks the repository or files.
    """
    found = {}
    hashes = FileHashes(runs / ".hashes.json")
    for argument in names:
        name, equals, file = argument.partition("=")
        location = file if equals else argument
        if location.startswith("hub:"):
            source = _hub_source(argument, location.removeprefix("hub:"))
            hub_name = str(source.hub).rpartition("/")[2]
            found[name if equals else hub_name] = fetch(hub_name, source, runs, hashes)
            continue
        path = expanded(file if equals else DEFAULT_FILES.get(argument, argument))
        if not path.exists():
            raise InputError(
                f"--benchmark {argument}: {path} does not exist. Question text is not shipped: "
                'write one {"id", "problem", "answer"} per line to that file, or give NAME=PATH or '
                "NAME=hub:OWNER/NAME@REVISION."
            )
        found[name if equals or argument in DEFAULT_FILES else path.stem] = path
    return found


def _hub_source(argument: str, repository: str) -> Source:
    identity, _, rest = repository.partition("@")
    revision, _, files = rest.partition(":")
    if "/" not in identity or not revision:
        raise InputError(
            f"--benchmark {argument}: a hub repository is hub:OWNER/NAME@REVISION, e.g. "
            "aime24=hub:math-ai/aime24@main; a commit hash instead of main never changes."
        )
    return Source(hub=identity, revision=revision, files=files or None)


def generate(
    checkpoint: Checkpoint,
    benchmarks: Mapping[str, Path],
    output: Path,
    placement: Placement,
    progress: Progress,
    noted: Callable[[str], None] = lambda text: None,
) -> Path:
    """Sample and grade a checkpoint on benchmarks, unless that is done and undamaged.

    Args:
        checkpoint: The model.
        benchmarks: Name -> file or folder.
        output: Folder for all checkpoints' responses.
        placement: As in a launch file.
        progress: Shows the number of responses.
        noted: Receives what the user should know, e.g. that a damaged folder is made again.

    Returns:
        The path of generations.jsonl.
    """
    memory = FileHashes(output / ".hashes.json")
    identity = {
        "config": checkpoint.config.hashed(),
        "model": content_of(checkpoint.model, memory),
        "benchmarks": {name: content_of(path, memory) for name, path in benchmarks.items()},
    }
    digits = artifact.fingerprint(identity)[:FINGERPRINT_DIGITS]
    folder = output / f"{checkpoint.name}-{digits}"
    if not _is_done(folder, memory, noted):
        partial = folder.with_name(f"{folder.name}.partial")
        artifact.fresh_partial(partial, keep=True)
        context = StageContext(checkpoint.name, partial / artifact.QUARANTINED, placement, progress)
        inputs = {f"benchmark.{name}": path for name, path in benchmarks.items()}
        inputs["model"] = checkpoint.model
        with failed_graphs_in(output / "logs" / folder.name):
            counts = evaluate(checkpoint.config, inputs, partial, context)
        manifest = {"identity": identity, "counts": counts.model_dump(mode="json")}
        artifact.commit(partial, folder, manifest)
    memory.save()
    return folder / "generations.jsonl"


def _is_done(folder: Path, memory: FileHashes, noted: Callable[[str], None]) -> bool:
    """Whether a checkpoint's folder is complete and as it was written."""
    manifest = artifact.read_manifest(folder)
    if manifest is None:
        return False
    damages = changed_files(folder, manifest["files"], memory)
    if damages:
        noted(f"damaged, and made again: {damages[0]}")
    return not damages
