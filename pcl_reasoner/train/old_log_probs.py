"""Evaluates samples with the trainer's own model: packed into rows, and in a separate process.

    samples   [1 2 3] and [4 5], labels [− 2 3] and [− 5]
    one row   input_ids [1 2 3 4 5 .]      values at the tokens that predict: [a b . c . .]
    samples   [0 a b] and [0 c]            each value at the token that it describes

The stage ``old_log_probs`` and ``pclr-ms inspect`` use it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.train import worker
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.needs import check_columns
from pcl_reasoner.train.render import write_yaml
from pcl_reasoner.weights.stream import header, weight_files

if TYPE_CHECKING:
    import pyarrow as pa

    from pcl_reasoner.core.stage import Progress
    from pcl_reasoner.pack.rows import Packing

ROWS_SEED = 0
"""Seed of the rows' order: which samples share a row affects only the last bits of the values."""


@dataclass(frozen=True)
class Evaluation:
    """The samples to evaluate, and the model that evaluates them.

    Args:
        config: The trainer's settings: shape, rows, precision, loss.
        policy: Hugging Face folder of the weights.
        samples: A table with tokenize's columns.
        pad_token_id: Token that fills the end of a row.
        gradient: True to compute entropies and gradients of the loss, too.
    """

    config: TrainConfig
    policy: Path
    samples: pa.Table
    pad_token_id: int
    gradient: bool = False


def evaluate(
    evaluation: Evaluation, folder: Path, log: Path, env: Mapping[str, str], progress: Progress
) -> Iterator[list[NDArray[np.float32]]]:
    """Run the forward pass; resume where a killed one stopped.

    Args:
        evaluation: The samples and the model.
        folder: Folder for rows, YAML and values. The caller keeps it until the pass is done.
        log: File for the output of the process.
        env: Additional environment variables of the process.
        progress: Where progress is reported.

    Returns:
        For each sample, in their order, its arrays [length]: log π of each token where it is
        trained on, 0 elsewhere; with ``gradient`` entropies and gradients likewise.

    Raises:
        StageError: There are no weights, a sample is longer than a row, the process failed, or
            (with ``gradient``) the loss needs a column that the samples lack.
    """
    from pcl_reasoner.pack.arrow_folder import write_arrow_folder
    from pcl_reasoner.pack.rows import plan_packing

    config = evaluation.config
    for path in weight_files(evaluation.policy):
        header(path)
    packing = plan_packing(
        evaluation.samples,
        config.seq_length,
        config.max_segments,
        ROWS_SEED,
        evaluation.pad_token_id,
    )
    rows = folder / "rows"
    rows.mkdir(parents=True, exist_ok=True)
    write_arrow_folder(rows, packing.schema, packing.batches())
    if evaluation.gradient:
        check_columns(config.loss, rows)
    inputs = {"packs": rows, "policy": evaluation.policy}
    write_yaml(config, inputs, folder, output_dir="output")
    command = [sys.executable, "-m", "pcl_reasoner.worker.forward", "mindformers.yaml"]
    command += ["values.f32", "progress.jsonl", *(["--gradient"] if evaluation.gradient else [])]
    total = len(packing.plan.rows)
    env = {"LOG_MF_PATH": str(folder / "log"), **env}
    worker.run_worker(command, folder, log, folder / "progress.jsonl", total, env, progress)
    return _sample_values(packing, folder / "values.f32", evaluation.gradient)


def _sample_values(
    packing: Packing, path: Path, gradient: bool
) -> Iterator[list[NDArray[np.float32]]]:
    """Split rows into samples: yield each one's values, moved to the tokens that they describe."""
    from pcl_reasoner.pack.rows import ListColumn
    from pcl_reasoner.pack.tokens import IGNORED

    shape = (len(packing.plan.rows), 3 if gradient else 1, packing.plan.seq_length)
    values = np.memmap(path, np.float32, "r", shape=shape)
    position: dict[int, tuple[int, int]] = {}
    for row, indices in enumerate(packing.plan.rows):
        ends = np.cumsum(packing.plan.lengths[indices])
        position |= {index: (row, end) for index, end in zip(indices, ends.tolist(), strict=True)}
    labels = ListColumn(packing.samples["labels"])
    for index in range(len(packing.kept)):
        row, end = position[index]
        length = int(packing.plan.lengths[index])
        found = np.zeros((shape[1], length), np.float32)
        found[:, 1:] = values[row, :, end - length : end - 1]
        trained = labels[index] != IGNORED
        trained[0] = False
        yield list(np.where(trained, found, np.float32(0)))


def forward_config(rows: int, **settings: Any) -> TrainConfig:
    """Return the trainer's settings of a forward pass; those of training alone have no effect.

    Args:
        rows: Rows per batch.
        settings: Settings of TrainConfig: ``loss``, which is used only for its gradient,
            ``seq_length``, ``max_segments``, ``model``, ``device``, ``precision``, …
    """
    return TrainConfig(
        seed=0,
        epochs=1,
        learning_rate=1e-6,
        learning_rate_end=0.0,
        warmup_ratio=0.0,
        global_batch_size=rows,
        micro_batch_size=rows,
        **settings,
    )
