"""The command ``pclr-ms rescore``: released result files, graded again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pcl_reasoner.cli_options import example

if TYPE_CHECKING:
    from pcl_reasoner.evaluate.rescore import Rescored


@click.command(
    epilog=example(
        "pclr-ms rescore aime24_bz32.jsonl aime25_bz32.jsonl",
        "pclr-ms rescore v1=v1/aime24_bz64.jsonl v15=v15/aime24_bz64.jsonl --tokenizer Qwen2.5-32B",
    )
)
@click.argument("files", nargs=-1, required=True, metavar="[NAME=]FILE...")
@click.option("--benchmark", metavar="NAME", help="Of all files; from their names if left out.")
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with a tokenizer.json: lengths, and scores by length.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("rescored"),
    show_default=True,
    metavar="DIR",
    help="Folder for the page and the lists.",
)
def rescore(
    files: tuple[str, ...], benchmark: str | None, tokenizer: Path | None, output: Path
) -> None:
    """Grade result files of LLMEval, QwQ or this project again, problem by problem.

    A line has prompt, answer and gen, and accuracy where it was scored. Files of one benchmark are
    compared on the problems that both have; the first is what the others are compared with.
    """
    from pcl_reasoner.artifact import write_atomically
    from pcl_reasoner.evaluate import rescore as rescoring
    from pcl_reasoner.report.results_page import render

    count_tokens = _counter(tokenizer) if tokenizer else None
    found = []
    for word in files:
        model, path = _named(word)
        name = benchmark or rescoring.benchmark_of(path)
        found.append(rescoring.rescore(path, model, name, count_tokens))
    output.mkdir(parents=True, exist_ok=True)
    scores = rescoring.write(found, output)
    write_atomically(output / "results.html", render(found, scores["comparisons"]))
    _show(found, output)


def _named(word: str) -> tuple[str, Path]:
    """``v1=file.jsonl`` or a file, whose folder's name is then its model's."""
    from pcl_reasoner.errors import InputError

    name, given, file = word.partition("=")
    path = Path(file if given else word).expanduser()
    if not path.is_file():
        raise InputError(f"{path}: no such file. Give result files, JSON lines, as [NAME=]FILE.")
    return (name if given else path.resolve().parent.name), path


def _counter(folder: Path) -> Callable[[str], int]:
    from tokenizers import Tokenizer

    from pcl_reasoner.errors import InputError

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise InputError(f"{folder}: no tokenizer.json in it. Give a folder that has one.")
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _show(found: list[Rescored], output: Path) -> None:
    from pcl_reasoner import terminal

    rows = []
    for one in found:
        figures = one.figures
        ends = figures["sampling_interval"]
        said = figures["recorded"]
        rows.append(
            (
                one.model,
                one.benchmark,
                f"{figures['problems']} x {figures['n']}",
                f"{100 * figures['avg_at_n']:.1f}",
                "–" if ends is None else f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}",
                "–" if said is None else f"{100 * said:.1f}",
                figures["disputed"],
                figures["refused"],
            )
        )
    columns = ("model", "benchmark", "samples", "avg", "95 %", "file says", "disputed", "refused")
    terminal.table(columns, rows, right=("avg", "file says", "disputed", "refused"))
    click.echo(f"page: {output / 'results.html'}")
