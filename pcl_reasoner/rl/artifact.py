"""Writes the artifact of a stage ``rl`` from its rounds, and removes what is not needed any more.

    rounds.parquet visits.parquet responses/part-00000.parquet plateau.json
    checkpoint/model.safetensors metrics.jsonl probe.jsonl mindformers.yaml rounds/00017/rows/

plateau.json is written last: once it is there, the other files are complete.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import TEMPORARY_FILES, atomic_file, write_atomically
from pcl_reasoner.core.schemas import RESPONSES, ROUND_RESPONSES, VISITS
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate.parts import record_batches
from pcl_reasoner.prompt.trained import write_prompt
from pcl_reasoner.rl.hand_over import FOLDER, HandOver
from pcl_reasoner.rl.loop import End, described
from pcl_reasoner.rl.render import ROUNDS
from pcl_reasoner.rl.training import write_round_yaml
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import END, round_folder
from pcl_reasoner.rounds.making import FIGURES, QUERIES, read_figures
from pcl_reasoner.rounds.making import RESPONSES as ROUND_RESPONSES_FILE
from pcl_reasoner.rounds.plateau import PLATEAU
from pcl_reasoner.train import worker
from pcl_reasoner.train.on_hosts import move_host_logs
from pcl_reasoner.train.render import WORK
from pcl_reasoner.train.stopping import Stop, read_steps

_METRICS = ("loss", "grad_norm", "learning_rate", "mismatch", "mismatch_abs", "mismatch_max")


def write_artifact(
    config: RlConfig, policy: Path, output: Path, weights: HandOver, end: End
) -> None:
    """Write all files of the artifact from the rounds.

    Args:
        config: The stage's settings.
        policy: The weights before round 0.
        output: The stage's folder.
        weights: Has the weights after the last round.
        end: Why and when the stage ended.
    """
    rounds = output / ROUNDS
    _write_responses(rounds, end.rounds, output / "responses")
    figures = [read_figures(rounds, number) for number in range(end.rounds)]
    _write_table(output / "visits.parquet", [v for one in figures for v in one["visits"]], VISITS)
    _write_rounds(output, figures)
    last = output / "checkpoint" / "model.safetensors"
    last.parent.mkdir(exist_ok=True)
    weights.write_checkpoint(end.rounds - 1, last)
    # The stop rules are not part of the result.
    write_round_yaml(config.model_copy(update={"stop_if": Stop()}), policy, output)
    write_prompt(output, config.system, config.suffix, config.template)
    kept = sum(one["responses"] - one["failed"] for one in figures)
    counts = {"responses": sum(one["responses"] for one in figures), "kept": kept}
    write_atomically(output / PLATEAU, json.dumps({**described(end), **counts}, indent=1) + "\n")


def clean(config: RlConfig, output: Path, context: StageContext) -> None:
    """Remove MindFormers' output, the weights of rounds, and what other files have now."""
    worker.remove_tree(output / WORK)
    for leftover in output.rglob(TEMPORARY_FILES):  # of killed runs
        leftover.unlink()
    move_host_logs(output, context)
    shutil.rmtree(output / "probe", ignore_errors=True)
    (output / ROUNDS / END).unlink(missing_ok=True)
    folders = sorted((output / ROUNDS).glob("[0-9]*"))
    for folder in folders:
        for name in (FOLDER, f".{FOLDER}"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in (FIGURES, ROUND_RESPONSES_FILE, QUERIES):
            (folder / name).unlink(missing_ok=True)
    if config.keep_rows == "last":
        for folder in folders[:-1]:
            shutil.rmtree(folder)


def _write_responses(rounds: Path, count: int, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.unify_schemas([RESPONSES, ROUND_RESPONSES])
    folder.mkdir(exist_ok=True)
    with (
        atomic_file(folder / "part-00000.parquet") as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for number in range(count):
            for batch in record_batches(round_folder(rounds, number) / ROUND_RESPONSES_FILE):
                writer.write_batch(batch)


def _write_table(file: Path, rows: list[dict[str, Any]], schema: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic_file(file) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary)


def _write_rounds(output: Path, figures: list[dict[str, Any]]) -> None:
    """Write rounds.parquet: the figures and the metrics of each round."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metrics = {one["step"]: one for one in read_steps(output / "metrics.jsonl")}
    rows = []
    for number, one in enumerate(figures):
        kinds = json.dumps(one["kinds"], sort_keys=True)
        counts = {key: value for key, value in one.items() if key not in ("kinds", "visits")}
        measured = {name: metrics[number + 1].get(name) for name in _METRICS}
        rows.append({"round": number, **counts, **measured, "kinds": kinds})
    with atomic_file(output / "rounds.parquet") as temporary:
        pq.write_table(pa.Table.from_pylist(rows), temporary)
