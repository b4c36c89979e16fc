"""Evaluates checkpoints outside a run: a folder of weights, or a recipe's exported model.

    argument "v15_opg"           the model and settings of that recipe's last evaluate stage
    argument "step800=/w/800"    a folder, named step800, with the settings of the options

Responses are kept under a hash of model, benchmarks and settings. A second call grades and shows
them again, and an interrupted call resumes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import InputError, join_errors
from pcl_reasoner.core.schema import Placement, Source
from pcl_reasoner.core.stage import Progress, StageContext
from pcl_reasoner.evaluate.config import EvaluateConfig
from pcl_reasoner.evaluate.stage import evaluate
from pcl_reasoner.runner.sources import HashCache, content_of, fetch
from pcl_reasoner.stages import inputs_of

DIGITS = 8
DEFAULT_FILES = {"aime24": "data/aime_2024.jsonl", "aime25": "data/aime_2025.jsonl"}
"""Where the recipes expect the questions, whose text is not shipped."""
_HUB = "hub:"


@dataclass(frozen=True)
class Checkpoint:
    """A model to evaluate.

    Args:
        name: Its name in the results.
        model: Hugging Face folder.
        config: How it is sampled.
    """

    name: str
    model: Path
    config: EvaluateConfig


def model_of(argument: str) -> tuple[str, Path] | None:
    """Parse ``name=folder`` or a folder as name and folder; None: it has no config.json."""
    name, equals, folder = argument.partition("=")
    path = Path(folder if equals else argument).expanduser()
    if not (path / "config.json").is_file():
        return None
    return (name if equals else path.resolve().name), path


def recipe_inputs(
    name: str, runs: Path, **where: Any
) -> tuple[Path, EvaluateConfig, dict[str, Path]]:
    """Find what a recipe's last evaluate stage reads: its model, settings and benchmarks.

    Args:
        name: A recipe, as for load_recipe.
        runs: Folder of all runs.
        where: Launch file, profile and seed, as for load_recipe.

    Raises:
        InputError: The recipe has no such stage, or the model does not exist yet.
    """
    from pcl_reasoner.runner.plan import make_plan
    from pcl_reasoner.runner.recipe import load_recipe

    recipe = load_recipe(name, **where)
    stages = [
        stage
        for stage in make_plan(recipe, runs).stages
        if isinstance(stage.spec.config, EvaluateConfig) and stage.recipe.name == recipe.name
    ]
    if not stages:
        raise InputError(f"recipe {name} has no stage evaluate. Give a folder with weights.")
    stage = stages[-1]
    model = stage.inputs["model"].path
    if not (model / "config.json").is_file():
        origin = stage.inputs["model"].origin
        raise InputError(
            f"recipe {name}: its model does not exist yet ({origin}). Make it first: "
            f"pclr-ms run {name} --until {origin.rpartition('/')[2]}"
        )
    assert isinstance(stage.spec.config, EvaluateConfig)
    paths = {role: planned.path for role, planned in stage.inputs.items()}
    return model, stage.spec.config, inputs_of(paths, "benchmark")


def with_settings(config: EvaluateConfig, settings: Sequence[str], n: int | None) -> EvaluateConfig:
    """Apply ``key=value`` settings and a number of responses to a configuration.

    Raises:
        InputError: A key is unknown or a value is not allowed; all such problems are in one error.
    """
    import yaml
    from pydantic import ValidationError

    values = config.model_dump()
    for argument in settings:
        key, _, value = argument.partition("=")
        values[key] = yaml.safe_load(value)
    if n is not None:
        values["n"] = n
    try:
        return EvaluateConfig(**values)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise join_errors([f"--set {problem}" for problem in problems]) from error


def benchmark_files(names: Sequence[str], runs: Path) -> dict[str, Path]:
    """Find benchmarks: paths, hub repositories, or aime24 and aime25 where the recipes expect them.

    Args:
        names: ``path``, ``name=path``, ``name=hub:OWNER/NAME@REVISION`` (followed by ``:FILES`` if
            not all files are wanted), ``aime24`` or ``aime25``.
        runs: Folder of all runs; files fetched from the hub are kept in it.

    Returns:
        Name -> file or folder.

    Raises:
        InputError: A path does not exist (question text is not shipped), or a hub name is
            incomplete.
        StageError: The hub does not answer or does not have it.
    """
    found = {}
    for argument in names:
        name, equals, file = argument.partition("=")
        location = file if equals else argument
        if location.startswith(_HUB):
            repository = location.removeprefix(_HUB)
            found[name if equals else _hub_name(repository)] = _fetched(argument, repository, runs)
            continue
        path = Path(file if equals else DEFAULT_FILES.get(argument, argument)).expanduser()
        if not path.exists():
            raise InputError(
                f"--benchmark {argument}: {path} does not exist. Question text is not shipped: "
                'write one {"id", "problem", "answer"} per line to that file, or give NAME=PATH or '
                "NAME=hub:OWNER/NAME@REVISION."
            )
        found[name if equals or argument in DEFAULT_FILES else path.stem] = path
    return found


def _hub_name(repository: str) -> str:
    return repository.partition("@")[0].rpartition("/")[2]


def _fetched(argument: str, repository: str, runs: Path) -> Path:
    """The folder of a hub repository, which is fetched if it does not exist yet."""
    identity, _, rest = repository.partition("@")
    revision, _, files = rest.partition(":")
    if "/" not in identity or not revision:
        raise InputError(
            f"--benchmark {argument}: a hub repository is hub:OWNER/NAME@REVISION, e.g. "
            "aime24=hub:math-ai/aime24@main; a commit hash instead of main never changes."
        )
    source = Source(hub=identity, revision=revision, files=files or None)
    return fetch(_hub_name(repository), source, runs)


def generate(
    checkpoint: Checkpoint,
    benchmarks: Mapping[str, Path],
    output: Path,
    placement: Placement,
    progress: Progress,
) -> Path:
    """Sample and grade a checkpoint on benchmarks.

    Args:
        checkpoint: The model.
        benchmarks: Name -> file or folder.
        output: Folder for all checkpoints' responses.
        placement: As in a launch file.
        progress: Shows the number of responses.

    Returns:
        The path of generations.jsonl.
    """
    memory = HashCache(output / ".hashes.json")
    identity = {
        "config": checkpoint.config.hashed(),
        "model": content_of(checkpoint.model, memory),
        "benchmarks": {name: content_of(path, memory) for name, path in benchmarks.items()},
    }
    memory.save()
    digits = artifact.fingerprint(identity)[:DIGITS]
    folder = output / f"{checkpoint.name}-{digits}"
    folder.mkdir(parents=True, exist_ok=True)
    context = StageContext(checkpoint.name, folder / artifact.QUARANTINED, placement, progress)
    inputs = {f"benchmark.{name}": path for name, path in benchmarks.items()}
    evaluate(checkpoint.config, {"model": checkpoint.model, **inputs}, folder, context)
    return folder / "generations.jsonl"
