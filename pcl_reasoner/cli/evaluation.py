"""The commands ``pclr-ms eval`` (checkpoints answer benchmarks) and ``pclr-ms rescore``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pcl_reasoner.cli.options import FOLDER, PATH, POSITIVE, example, runs_option, where_options
from pcl_reasoner.core.errors import InputError, shortened

if TYPE_CHECKING:
    from pcl_reasoner.core.schema import Placement
    from pcl_reasoner.evaluate.checkpoints import Checkpoint
    from pcl_reasoner.evaluate.rescore import Rescored


@click.command(
    epilog=example(
        "pclr-ms rescore aime24_bz32.jsonl aime25_bz32.jsonl",
        "pclr-ms rescore v1=v1/aime24_bz64.jsonl v15=v15/aime24_bz64.jsonl --tokenizer Qwen2.5-32B",
    )
)
@click.argument("files", nargs=-1, required=True, metavar="[NAME=]FILE...")
@click.option(
    "--benchmark",
    metavar="NAME",
    help="Benchmark of all files; if left out, the one in each line or else in the file's name.",
)
@click.option(
    "--tokenizer",
    type=PATH,
    metavar="DIR",
    help="Folder with a tokenizer.json, to show lengths and scores by length.",
)
@click.option(
    "--output",
    type=FOLDER,
    default=Path("rescored"),
    metavar="DIR",
    help="Folder for the page and the lists.",
)
def rescore(
    files: tuple[str, ...], benchmark: str | None, tokenizer: Path | None, output: Path
) -> None:
    """Grade result files of LLMEval, QwQ or this project again, problem by problem.

    A line has prompt, answer and gen, and accuracy if the answer was scored. Each file is compared
    with the first file of the same benchmark, on the problems that the two have in common.
    """
    from pcl_reasoner.evaluate import rescore as rescoring

    count_tokens = _counter(tokenizer) if tokenizer else None
    found = []
    for model, path in map(_model_and_path, files):
        found += rescoring.rescore(path, model, benchmark, count_tokens)
    _write(found, output)


@click.command(
    "eval",
    epilog=example(
        "pclr-ms eval v15_opg",
        "pclr-ms eval old=ckpt/400 new=ckpt/800 --benchmark aime24 -n 64 --launch my_cluster.yaml",
    ),
)
@click.argument("models", nargs=-1, required=True, metavar="RECIPE|[NAME=]MODEL...")
@click.option(
    "--benchmark",
    "benchmarks",
    multiple=True,
    metavar="[NAME=]FILE|hub:ID@REVISION",
    help="Questions with answers; aime24 and aime25 are read from data/. Repeatable.",
)
@click.option("-n", "n", type=POSITIVE, help="Responses per question.")
@click.option("--recipe", metavar="RECIPE", help="Use its evaluate stage's sampling settings.")
@click.option("--server", "servers", multiple=True, metavar="URL", help="OpenAI-compatible, /v1.")
@click.option(
    "--key-variable", metavar="NAME", help="Environment variable with the key for --server."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, e.g. temperature=0."
)
@where_options
@click.option(
    "--output",
    type=FOLDER,
    default=Path("evaluated"),
    metavar="DIR",
    help="Folder for responses, the page and the lists.",
)
@runs_option
def evaluate(
    models: tuple[str, ...],
    benchmarks: tuple[str, ...],
    servers: tuple[str, ...],
    key_variable: str | None,
    output: Path,
    runs: Path,
    **options: Any,
) -> None:
    """Answer benchmarks with one or several checkpoints, and compare them.

    A recipe stands for the model that its last evaluate stage reads, with that stage's settings.
    Without --benchmark, the benchmarks are those of the first recipe. Existing responses are kept
    and not generated again.
    """
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.evaluate import checkpoints
    from pcl_reasoner.evaluate import rescore as rescoring
    from pcl_reasoner.runner.launch_file import load_launch

    found, files = _checkpoints(models, runs, **options)
    if benchmarks:
        files = checkpoints.benchmark_files(benchmarks, runs)
    if not files:
        raise InputError("no benchmark: give --benchmark FILE, or a recipe that has benchmarks.")
    placement = load_launch(options["launch"]).placement
    if servers:
        placement = _with_servers(placement, servers, key_variable)
    elif key_variable:
        raise InputError(
            "--key-variable: works only with --server; a launch file names its keys in "
            "placement.api_keys."
        )
    by_server = any(one.config.engine == "server" for one in found)
    if len(found) > 1 and by_server and placement.urls_of("sampling"):
        raise InputError(
            f"{len(found)} models, but the given servers serve one: evaluate one model at a time, "
            "or let a launch file start a server for each (placement.sampling)."
        )
    output.mkdir(parents=True, exist_ok=True)
    scored = []
    for one in found:
        with terminal.run_view() as progress:
            progress.begin(f"evaluation of {one.name}")
            answers = checkpoints.generate(one, files, output, placement, progress, progress.noted)
        scored += rescoring.rescore(answers, one.name, None, _counter(one.model))
    _write(scored, output)


def _with_servers(
    placement: Placement, servers: tuple[str, ...], key_variable: str | None
) -> Placement:
    """The placement with the servers of ``--server``, and with the API keys for these servers."""
    from pcl_reasoner.core.api_keys import check_variable, without_slash
    from pcl_reasoner.core.checks import check_url

    try:
        urls = {without_slash(check_url(url)) for url in servers}
    except ValueError as error:
        raise InputError(f"--server: {error}.") from error
    try:
        check_variable(key_variable or "KEY", "--key-variable")
    except ValueError as error:
        raise InputError(f"{error}.") from error
    keys = {url: name for url, name in placement.api_keys.items() if without_slash(url) in urls}
    if key_variable:
        keys |= dict.fromkeys(servers, key_variable)
    changes = {"server_urls": list(servers), "sampling": None, "api_keys": keys}
    return placement.model_copy(update=changes)


def _checkpoints(
    models: tuple[str, ...],
    runs: Path,
    n: int | None,
    recipe: str | None,
    settings: tuple[str, ...],
    **launch_options: Any,
) -> tuple[list[Checkpoint], dict[str, Path]]:
    """Return (checkpoints with their settings, name -> file of the first recipe's benchmarks)."""
    from pcl_reasoner.core.validation import validated
    from pcl_reasoner.evaluate import checkpoints
    from pcl_reasoner.runner.launch_file import load_launch
    from pcl_reasoner.stages import STAGES

    # The launch file's settings for all evaluate stages, e.g. the engine.
    launch = launch_options["launch"]
    hashed = load_launch(launch).hashed.get("evaluate", {})
    config: Any = validated(STAGES["evaluate"].config_class(), hashed, f"{launch}: hashed.evaluate")
    files: dict[str, Path] = {}
    if recipe:
        _, config, files = checkpoints.recipe_inputs(recipe, runs, **launch_options)
    found = []
    for argument in models:
        model, model_config = checkpoints.model_of(argument), config
        if model is None:
            inputs = checkpoints.recipe_inputs(argument, runs, **launch_options)
            path, model_config, benchmarks = inputs
            model, files = (Path(argument).stem, path), files or benchmarks
        model_config = checkpoints.with_settings(model_config, settings, n)
        found.append(checkpoints.Checkpoint(*model, model_config))
    return found, files


def _write(found: list[Rescored], output: Path) -> None:
    from pcl_reasoner.core.artifact import write_atomically
    from pcl_reasoner.evaluate import rescore as rescoring
    from pcl_reasoner.report.results_page import render

    output.mkdir(parents=True, exist_ok=True)
    scores = rescoring.write(found, output)
    write_atomically(output / "results.html", render(found, scores["comparisons"]))
    _show(found, output)


def _model_and_path(argument: str) -> tuple[str, Path]:
    """Split ``v1=file.jsonl`` into name and path; without a name, the folder names the model."""
    name, equals, file = argument.partition("=")
    from pcl_reasoner.core.files import expanded, is_file

    path = expanded(file if equals else argument)
    if not is_file(path):
        shown = shortened(str(path), 200)
        raise InputError(f"{shown}: no such file. Give JSON-lines result files as [NAME=]FILE.")
    return (name if equals else path.resolve().parent.name), path


def _counter(folder: Path) -> Callable[[str], int]:
    from pcl_reasoner.curate.token_lengths import open_tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise InputError(f"{folder}: has no tokenizer.json. Give a folder that has one.")
    tokenizer = open_tokenizer(file)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _show(found: list[Rescored], output: Path) -> None:
    from pcl_reasoner.cli import terminal

    rows = []
    for one in found:
        figures = one.figures
        interval = figures["sampling_interval"]
        recorded = figures["recorded"]
        rows.append(
            (
                one.model,
                one.benchmark,
                f"{figures['problems']} x {figures['n']}",
                f"{100 * figures['avg_at_n']:.1f}",
                " to ".join(f"{100 * end:.1f}" for end in interval) if interval else "–",
                "–" if recorded is None else f"{100 * recorded:.1f}",
                figures["disputed"],
                figures["refused"],
            )
        )
    columns = ("model", "benchmark", "samples", "avg", "95 %", "file says", "disputed", "refused")
    terminal.table(columns, rows, right=("avg", "file says", "disputed", "refused"))
    click.echo(f"page: {output / 'results.html'}")
