"""The program that computes a policy's log-probs of packed rows, without training.

    python -m pcl_reasoner.worker.forward mindformers.yaml values.f32 progress.jsonl [--gradient]

The YAML is the trainer's, so that model, configuration and loading of weights are the same as in
training. Rows are read in their stored order. For each row of S tokens, [1, S] float32 is appended
to ``values.f32``: log π of each label; with ``--gradient`` [3, S]: also entropy and ∂loss/∂log π.
Its CRC-32, a uint32, is appended to ``values.crc32``: a resumed run keeps rows whose CRC is right.
"""

import argparse
import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pcl_reasoner.worker.entry import follow_environment, import_mindformers, read_config

SUMS = ".crc32"
"""Suffix of the file with a CRC-32 per row of values."""
_SUM = struct.Struct("<I")
Batch = tuple[int, dict[str, Any]]
"""(rows without the repeated ones, name -> column [rows, …])."""


def prepare(config: Any) -> Any:
    """Set up the context; return the model as MindFormers' Trainer builds it, without weights."""
    from mindformers.core.context import build_context
    from mindformers.core.parallel_config import build_parallel_config
    from mindformers.models import build_network
    from mindformers.utils.file_utils import set_output_path, set_strategy_save_path

    from pcl_reasoner.trainer import mindformers_1_8 as version

    if config.use_parallel:
        # Every rank gets all rows of a batch and returns the values of all.
        config.parallel.full_batch, config.parallel.dataset_strategy = True, "full_batch"
    set_output_path(config.output_dir)
    build_context(config)
    build_parallel_config(config)
    set_strategy_save_path(config.parallel)
    version.install_cpu_operators()
    arguments = {"parallel_config": config.parallel_config, "moe_config": config.moe_config}
    network = build_network(config.model, default_args=arguments)
    network.set_train(False)
    return network


def load(config: Any, network: Any, model: Any, columns: Any) -> None:
    """Load the weights; several ranks compile the forward pass first, to know their slices.

    Args:
        config: The configuration.
        network: The trainer's model.
        model: mindspore.Model of the forward pass.
        columns: Tensors of one batch.
    """
    from mindformers.trainer.utils import transform_and_load_checkpoint

    several = bool(config.use_parallel)
    transform_and_load_checkpoint(config, model, network, columns, do_predict=several)


def batches(
    table: Any, size: int, ranks: int, max_segments: int, compressed: bool, first: int
) -> Iterator[Batch]:
    """Make the model's columns, batch by batch; the last row is repeated to fill the last batch.

    Args:
        table: Packed rows (datasets).
        size: Rows per batch.
        ranks: Number of data-parallel ranks, which share a batch.
        max_segments: G, the largest number of segments per row.
        compressed: True for the compressed mask, which is the column ``actual_seq_len``.
        first: Number of rows that are already done.

    Yields:
        The number of rows without the repeated ones, and the columns, each [size, …].
    """
    import numpy as np

    from pcl_reasoner.trainer import rows

    segments, tokens = np.maximum(rows.counts_of(table).sum(axis=0), 1)
    table = rows.as_arrays(table)
    for start in range(first, len(table), size):
        indices = [min(index, len(table) - 1) for index in range(start, start + size)]
        batch = [
            rows.model_row(table[index], max_segments, 1 / segments, 1 / tokens, compressed)
            for index in indices
        ]
        columns = {name: np.stack([row[name] for row in batch]) for name in batch[0]}
        if compressed:
            # A rank's rows are one long row in MindFormers: add the lengths of the rows before.
            rows_before = np.arange(size, dtype=np.int32) % (size // ranks)
            offsets = rows_before * columns["labels"].shape[1]
            columns["actual_seq_len"] = columns["actual_seq_len"] + offsets[:, None]
        yield min(size, len(table) - start), columns


def full_batches(path: Path, row_bytes: int, size: int) -> int:
    """Return the number of rows in a file's complete, undamaged batches; 0 without a file."""
    return _undamaged_rows(path, row_bytes) // size * size


def _undamaged_rows(path: Path, row_bytes: int) -> int:
    """Return the number of rows before the first one whose CRC is missing or differs."""
    sums = path.with_suffix(SUMS)
    if not (path.exists() and sums.exists()):
        return 0
    with path.open("rb") as values:
        for row, (written,) in enumerate(_SUM.iter_unpack(_whole(sums.read_bytes()))):
            found = values.read(row_bytes)
            if len(found) < row_bytes or zlib.crc32(found) != written:
                return row
    return sums.stat().st_size // _SUM.size


def _whole(sums: bytes) -> bytes:
    """Cut off a CRC that was being written."""
    return sums[: len(sums) // _SUM.size * _SUM.size]


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and compute the log-probs."""
    parser = argparse.ArgumentParser(prog="python -m pcl_reasoner.worker.forward")
    parser.add_argument("config")
    parser.add_argument("values", type=Path)
    parser.add_argument("progress", type=Path)
    parser.add_argument("--gradient", action="store_true")
    parsed = parser.parse_args(arguments)
    follow_environment()
    import_mindformers()
    config, _ = read_config(parsed.config, [], None)
    run(config, parsed.values, parsed.progress, parsed.gradient)


def run(config: Any, values: Path, progress: Path, gradient: bool) -> None:
    """Compute the values of all rows that are not in the file yet; rank 0 appends them to it."""
    import datasets
    from mindspore import Model

    from pcl_reasoner.trainer.forward_cell import Forward

    model = config.model.model_config
    compressed, max_segments = bool(model.use_eod_attn_mask_compression), int(model.max_segments)
    table = datasets.load_from_disk(config.train_dataset.data_loader.path)
    ranks = int(config.parallel_config.data_parallel)
    size, values_per_label = int(model.batch_size) * ranks, 3 if gradient else 1
    row_bytes = 4 * int(model.seq_length) * values_per_label
    done = full_batches(values, row_bytes, size)
    if done >= len(table):
        return
    found = batches(table, size, ranks, max_segments, compressed, done)
    network = prepare(config)
    forward = Model(Forward(network, max_segments, compressed, gradient))
    first = next(found)
    # All ranks have counted the rows that are done when the weights are loaded.
    load(config, network, forward, tensors(first))
    writer = Writer(values, progress, done, row_bytes) if is_first_rank() else None
    for batch in chain([first], found):
        results = forward.predict(*tensors(batch))
        if writer is not None:
            writer.append(batch, results)


def is_first_rank() -> bool:
    """Return whether this process is rank 0, or the only one."""
    return os.environ.get("RANK_ID", "0") == "0"


def tensors(batch: Batch) -> list[Any]:
    """Return a batch's columns as MindSpore's tensors, in their order."""
    from mindspore import Tensor

    return [Tensor(column) for column in batch[1].values()]


def _append(file: Path, data: bytes) -> None:
    with file.open("ab") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


class Writer:
    """Appends the values of batches to a file, and a line of progress per batch to another.

    Args:
        values: The file of values; what follows its done rows is removed, as in the CRC's file.
        progress: The file with a line per batch.
        done: Rows that the file of values has already.
        row_bytes: Bytes of a row's values.
    """

    def __init__(self, values: Path, progress: Path, done: int, row_bytes: int) -> None:
        self.values, self.progress, self.done = values, progress, done
        self.sums = values.with_suffix(SUMS)
        for file, row_size in ((values, row_bytes), (self.sums, _SUM.size)):
            with file.open("ab") as handle:
                handle.truncate(done * row_size)

    def append(self, batch: Batch, results: Sequence[Any]) -> None:
        """Append the values of a batch's rows, without those of repeated rows."""
        import numpy as np

        number, columns = batch
        found = np.stack([value.asnumpy() for value in results], 1)[:number]
        rows = [row.astype(np.float32).tobytes() for row in found]
        _append(self.values, b"".join(rows))
        _append(self.sums, b"".join(_SUM.pack(zlib.crc32(row)) for row in rows))
        self.done += number
        trained = columns["labels"][:number] != -100
        loss = -float(found[:, 0].sum()) / max(1, int(trained.sum()))
        with self.progress.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"step": self.done, "loss": loss}) + "\n")


if __name__ == "__main__":
    main()
