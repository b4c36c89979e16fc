"""Samples evaluated by the trainer's own model: packed, run in a process of its own, taken apart.

    samples   [1 2 3] and [4 5], labels [− 2 3] and [− 5]
    one row   input_ids [1 2 3 4 5 .]      values of the places that predict: [a b . c . .]
    samples   [0 a b] and [0 c]            each value on the token that it is about

For the stage ``old_log_probs`` and for ``pclr-ms inspect``.
"""

from __future__ import annotations

import os
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
from pcl_reasoner.weights.model_config import ModelShape
from pcl_reasoner.weights.stream import header, weight_files

if TYPE_CHECKING:
    import pyarrow as pa

    from pcl_reasoner.core.stage import Progress
    from pcl_reasoner.pack.rows import Packing

PLACES_SEED = 0
"""Of the rows' order: which samples share a row changes nothing but the last bits."""


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated, and by what.

    Args:
        config: The trainer's settings: shape, rows, precision, loss.
        policy: Hugging Face folder of the weights.
        samples: tokenize's columns.
        pad_token_id: Fills a row's end.
        gradient: Entropies and gradients of the loss, too.
    """

    config: TrainConfig
    policy: Path
    samples: pa.Table
    pad_token_id: int
    gradient: bool = False


def evaluate(
    what: Evaluation, folder: Path, log: Path, env: Mapping[str, str], progress: Progress
) -> Iterator[list[NDArray[np.float32]]]:
    """Run the forward pass, going on where a killed one stopped.

    Args:
        what: What is evaluated.
        folder: Its work: rows, YAML, values. Kept by the caller until it is done.
        log: File that takes what the process prints.
        env: Further environment of the process.
        progress: Where progress goes.

    Returns:
        For each sample, in their order, its arrays [length]: log π of each token where it is
        trained on, 0 elsewhere; with ``gradient`` entropies and gradients likewise.

    Raises:
        StageError: There are no weights, a sample is longer than a row, the loss whose gradient is
            asked for needs a column that the samples lack, or the process failed.
    """
    from pcl_reasoner.pack.arrow_folder import write_arrow_folder
    from pcl_reasoner.pack.rows import plan_packing

    config = what.config
    for path in weight_files(what.policy):
        header(path)
    packing = plan_packing(
        what.samples, config.seq_length, config.max_segments, PLACES_SEED, what.pad_token_id
    )
    rows = folder / "rows"
    rows.mkdir(parents=True, exist_ok=True)
    write_arrow_folder(rows, packing.schema, packing.batches())
    if what.gradient:
        check_columns(config.loss, rows)
    _write_yaml(what, folder)
    command = [sys.executable, "-m", "pcl_reasoner.worker.forward", "mindformers.yaml"]
    command += ["values.f32", "progress.jsonl", *(["--gradient"] if what.gradient else [])]
    total = len(packing.plan.rows)
    env = {"LOG_MF_PATH": str(folder / "log"), **env}
    worker.run_worker(command, folder, log, folder / "progress.jsonl", total, env, progress)
    return _of_samples(packing, folder / "values.f32", what.gradient)


def _write_yaml(what: Evaluation, folder: Path) -> None:
    from pcl_reasoner.train.render import render, to_yaml
    from pcl_reasoner.train.shape import shape_of

    paths = {
        "packs": "rows",
        "policy": os.path.relpath(what.policy, folder),
        "metrics": "metrics.jsonl",
        "output_dir": "output",
    }
    value = render(what.config, shape_of(what.config, what.policy), paths)
    (folder / "mindformers.yaml").write_text(to_yaml(value), encoding="utf-8")


def _of_samples(
    packing: Packing, path: Path, gradient: bool
) -> Iterator[list[NDArray[np.float32]]]:
    """Take rows apart: the values of each sample, moved onto the tokens that they are about."""
    from pcl_reasoner.pack.rows import ListColumn
    from pcl_reasoner.pack.tokens import IGNORED

    shape = (len(packing.plan.rows), 3 if gradient else 1, packing.plan.seq_length)
    values = np.memmap(path, np.float32, "r", shape=shape)
    place: dict[int, tuple[int, int]] = {}
    for row, indices in enumerate(packing.plan.rows):
        ends = np.cumsum(packing.plan.lengths[indices])
        place |= {index: (row, end) for index, end in zip(indices, ends.tolist(), strict=True)}
    labels = ListColumn(packing.samples["labels"])
    for index in range(len(packing.kept)):
        row, end = place[index]
        length = int(packing.plan.lengths[index])
        found = np.zeros((shape[1], length), np.float32)
        found[:, 1:] = values[row, :, end - length : end - 1]
        trained = labels[index] != IGNORED
        trained[0] = False
        yield list(np.where(trained, found, np.float32(0)))


def forward_config(
    loss: str,
    seq_length: int,
    max_segments: int,
    rows: int,
    model: ModelShape | None,
    **settings: Any,
) -> TrainConfig:
    """The trainer's settings of a forward pass; what only training reads has no effect.

    Args:
        loss: In LOSSES; only its gradient is asked for.
        seq_length: Tokens a row.
        max_segments: Segments a row at most.
        rows: Rows at a time.
        model: The shape that is expected.
        settings: Further ones of TrainConfig: ``device``, ``precision``, …
    """
    return TrainConfig(
        loss=loss,
        seed=0,
        epochs=1,
        learning_rate=1e-6,
        learning_rate_end=0.0,
        warmup_ratio=0.0,
        global_batch_size=rows,
        micro_batch_size=rows,
        seq_length=seq_length,
        max_segments=max_segments,
        model=model,
        **settings,
    )
