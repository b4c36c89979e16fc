"""Packs samples into rows, and computes their log-probs with the trainer's model in a new process.

    samples   [1 2 3] and [4 5], labels [− 2 3] and [− 5]
    one row   input_ids [1 2 3 4 5 .]      values where they are predicted: [a b . c . .]
    samples   [0 a b] and [0 c]            each value at the token that it describes

The stage ``old_log_probs`` and ``pclr-ms inspect`` use it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.rows import Packing, list_at, plan_packing
from pcl_reasoner.pack.tokens import IGNORED
from pcl_reasoner.perplexity.forward import run_forward
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.needs import check_columns
from pcl_reasoner.train.render import write_yaml
from pcl_reasoner.weights.stream import read_files, weight_files

ROWS = "rows"
"""Folder of the packed rows."""
ROWS_SEED = 0
"""Seed of the rows' order. The order affects only the last bits of the values."""


@dataclass(frozen=True)
class Evaluation:
    """Samples, and the model that computes their log-probs.

    Args:
        config: The trainer's settings: shape, rows, precision, loss.
        policy: Hugging Face folder of the weights.
        samples: A table with tokenize's columns.
        pad_token_id: Token that fills the end of a row.
        gradient: True to compute entropies and gradients of the loss as well.
    """

    config: TrainConfig
    policy: Path
    samples: pa.Table
    pad_token_id: int
    gradient: bool = False


def evaluate(
    evaluation: Evaluation, folder: Path, log: Path, context: StageContext
) -> Iterator[list[NDArray[np.float32]]]:
    """Run the forward pass; resume where an earlier, killed process stopped.

    Args:
        evaluation: The samples and the model.
        folder: Folder for rows, YAML and values; it is needed until all values are read.
        log: File for the output of the process.
        context: Has the machines, and how processes are started there; receives progress.

    Returns:
        For each sample, in their order, its arrays [length]: log π of each trained token, 0 for
        other tokens. With ``gradient`` also the entropies, and ∂loss / ∂ log π, in the same form.

    Raises:
        StageError: There are no weights, a sample is longer than a row, the process failed, or
            (with ``gradient``) the loss needs a column that the samples lack.
    """
    config = evaluation.config
    read_files(weight_files(evaluation.policy))  # raises an error for a truncated file
    packing = write_rows(evaluation, folder)
    if evaluation.gradient:
        check_columns(config.loss, config.loss_parameters, folder / ROWS)
    inputs = {"packs": folder / ROWS, "policy": evaluation.policy}
    write_yaml(config, inputs, folder, output_dir="output")
    words = ["mindformers.yaml", "values.f32", "progress.jsonl"]
    words += ["--gradient"] if evaluation.gradient else []
    total = len(packing.plan.rows)
    program = "pcl_reasoner.worker.forward"
    policy = evaluation.policy
    run_forward(config, program, words, folder, log, total, policy, context)
    return sample_values(packing, folder / "values.f32", evaluation.gradient)


def write_rows(evaluation: Evaluation, folder: Path) -> Packing:
    """Pack the samples into the rows of ``folder/rows``.

    Raises:
        StageError: A sample is longer than a row.
    """
    limits = (evaluation.config.seq_length, evaluation.config.max_segments)
    packing = plan_packing(evaluation.samples, *limits, ROWS_SEED, evaluation.pad_token_id)
    rows = folder / ROWS
    rows.mkdir(parents=True, exist_ok=True)
    write_arrow_folder(rows, packing.schema, packing.batches())
    return packing


def sample_values(
    packing: Packing, path: Path, gradient: bool
) -> Iterator[list[NDArray[np.float32]]]:
    """Yield the values of each sample, each value at the token that it describes.

    Args:
        packing: How the samples were packed.
        path: The file of values.
        gradient: True if it has three values per token.
    """
    shape = (len(packing.plan.rows), 3 if gradient else 1, packing.plan.seq_length)
    values = np.memmap(path, np.float32, "r", shape=shape)
    position: dict[int, tuple[int, int]] = {}
    for row, indices in enumerate(packing.plan.rows):
        ends = np.cumsum(packing.plan.lengths[indices])
        position |= {index: (row, end) for index, end in zip(indices, ends.tolist(), strict=True)}
    labels = packing.samples["labels"]
    for index in range(len(packing.kept)):
        row, end = position[index]
        length = int(packing.plan.lengths[index])
        found = np.zeros((shape[1], length), np.float32)
        found[:, 1:] = values[row, :, end - length : end - 1]
        trained = list_at(labels, index) != IGNORED
        trained[0] = False
        yield list(np.where(trained, found, np.float32(0)))


def forward_config(rows: int, **settings: Any) -> TrainConfig:
    """Return a TrainConfig for a forward pass; settings that only training uses have no effect.

    Args:
        rows: Rows per batch of a data-parallel rank.
        settings: Settings of TrainConfig: ``loss``, which is used only for its gradient,
            ``seq_length``, ``max_segments``, ``model``, ``device``, ``precision``, the layout, …
    """
    batch = rows * settings.get("data_parallel", 1)
    settings |= {"seed": 0, "epochs": 1, "global_batch_size": batch, "micro_batch_size": rows}
    return TrainConfig(learning_rate=1e-6, learning_rate_end=0.0, warmup_ratio=0.0, **settings)
