"""The program that computes a policy's log-probs of packed rows, without training.

    python -m pcl_reasoner.worker.forward mindformers.yaml values.f32 progress.jsonl [--gradient]

The YAML is the trainer's, so that model, configuration and loading of weights are the same as in
training. Rows are read in their stored order. For each row of S tokens, [1, S] float32 is appended
to ``values.f32``: log π of each label; with ``--gradient`` [3, S]: also entropy and ∂loss/∂log π.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from pcl_reasoner.worker.entry import die_with_parent_if_set, import_mindformers, read_config


def build(config: Any) -> Any:
    """Set up the context; return the model with its weights, as MindFormers' Trainer builds it."""
    from mindformers.core.context import build_context
    from mindformers.core.parallel_config import build_parallel_config
    from mindformers.models import build_network
    from mindformers.trainer.utils import transform_and_load_checkpoint
    from mindformers.utils.file_utils import set_output_path
    from mindspore import Model

    from pcl_reasoner.trainer import mindformers_1_8 as version

    set_output_path(config.output_dir)
    build_context(config)
    build_parallel_config(config)
    version.install_cpu_operators()
    arguments = {"parallel_config": config.parallel_config, "moe_config": config.moe_config}
    network = build_network(config.model, default_args=arguments)
    network.set_train(False)
    transform_and_load_checkpoint(config, Model(network), network, None)
    return network


def batches(table: Any, size: int, max_segments: int, compressed: bool, first: int) -> Any:
    """Make the model's columns, batch by batch; the last row is repeated to fill the last batch.

    Args:
        table: Packed rows (datasets).
        size: Rows per batch.
        max_segments: G, the largest number of segments per row.
        compressed: True for the compressed mask, which is the column ``actual_seq_len``.
        first: Number of rows that are already done.

    Yields:
        The number of rows without the repeated ones, and the columns, each [size, …].
    """
    import numpy as np

    from pcl_reasoner.trainer import rows

    counts = np.array([rows.trained_counts(row) for row in table])
    segments, tokens = np.maximum(counts.sum(axis=0), 1)
    for start in range(first, len(table), size):
        indices = [min(index, len(table) - 1) for index in range(start, start + size)]
        batch = [
            rows.model_row(table[index], max_segments, 1 / segments, 1 / tokens, compressed)
            for index in indices
        ]
        columns = {name: np.stack([row[name] for row in batch]) for name in batch[0]}
        if compressed:
            # A batch is one long row in MindFormers: add the lengths of the rows before.
            offsets = np.arange(size, dtype=np.int32) * columns["labels"].shape[1]
            columns["actual_seq_len"] = columns["actual_seq_len"] + offsets[:, None]
        yield min(size, len(table) - start), columns


def truncate_to_full_batches(path: Path, row_bytes: int, size: int) -> int:
    """Remove an incomplete batch at a file's end; return the number of rows that remain."""
    rows = path.stat().st_size // row_bytes // size * size if path.exists() else 0
    with path.open("ab") as handle:
        handle.truncate(rows * row_bytes)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and compute the log-probs."""
    parser = argparse.ArgumentParser(prog="python -m pcl_reasoner.worker.forward")
    parser.add_argument("config")
    parser.add_argument("values", type=Path)
    parser.add_argument("progress", type=Path)
    parser.add_argument("--gradient", action="store_true")
    parsed = parser.parse_args(arguments)
    die_with_parent_if_set()
    import_mindformers()
    config, _ = read_config(parsed.config, [], None)
    run(config, parsed.values, parsed.progress, parsed.gradient)


def run(config: Any, values: Path, progress: Path, gradient: bool) -> None:
    """Compute the values of all rows that are not in the file yet, and append them to it."""
    import datasets
    import numpy as np
    from mindspore import Tensor

    from pcl_reasoner.trainer.forward_cell import Forward

    loader, model = config.train_dataset.data_loader, config.model.model_config
    compressed = bool(model.use_eod_attn_mask_compression)
    table = datasets.load_from_disk(loader.path)
    size, values_per_label = int(model.batch_size), 3 if gradient else 1
    row_bytes = 4 * int(model.seq_length) * values_per_label
    done = truncate_to_full_batches(values, row_bytes, size)
    if done >= len(table):
        return
    max_segments = int(model.max_segments)
    forward = Forward(build(config), max_segments, compressed, gradient)
    with values.open("ab") as handle, progress.open("a", encoding="utf-8") as log:
        for number, columns in batches(table, size, max_segments, compressed, done):
            found = forward(*(Tensor(column) for column in columns.values()))
            results = np.stack([value.asnumpy() for value in found], 1)[:number]
            handle.write(results.astype(np.float32).tobytes())
            handle.flush()
            os.fsync(handle.fileno())
            done += number
            trained = columns["labels"] != -100
            loss = -float(results[:, 0].sum()) / max(1, int(trained[:number].sum()))
            log.write(json.dumps({"step": done, "loss": loss}) + "\n")
            log.flush()


if __name__ == "__main__":
    main()
