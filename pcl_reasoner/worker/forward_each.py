"""The program that computes log-probs of the same packed rows with several sets of weights.

    python -m pcl_reasoner.worker.forward_each mindformers.yaml passes.json progress.jsonl

passes.json: [["weights/0", "values/0.f32"], …]. The model is compiled once, and each folder of
weights is loaded into it in turn. Values are written as by ``worker.forward``.
"""

import argparse
import json
from itertools import chain
from pathlib import Path
from typing import Any

from pcl_reasoner.worker.entry import follow_environment, import_mindformers, read_config
from pcl_reasoner.worker.forward import Writer, batches, is_first_rank, load, prepare, tensors


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and compute all passes."""
    parser = argparse.ArgumentParser(prog="python -m pcl_reasoner.worker.forward_each")
    parser.add_argument("config")
    parser.add_argument("passes", type=Path)
    parser.add_argument("progress", type=Path)
    parsed = parser.parse_args(arguments)
    follow_environment()
    import_mindformers()
    config, _ = read_config(parsed.config, [], None)
    run(config, json.loads(parsed.passes.read_text(encoding="utf-8")), parsed.progress)


def run(config: Any, passes: list[list[str]], progress: Path) -> None:
    """Compute the log-probs of all rows once per folder of weights; rank 0 writes them."""
    import datasets
    from mindspore import Model

    from pcl_reasoner.trainer.forward_cell import Forward

    model = config.model.model_config
    compressed, max_segments = bool(model.use_eod_attn_mask_compression), int(model.max_segments)
    table = datasets.load_from_disk(config.train_dataset.data_loader.path)
    ranks = int(config.parallel_config.data_parallel)
    size, row_bytes = int(model.batch_size) * ranks, 4 * int(model.seq_length)
    network = prepare(config)
    forward = Model(Forward(network, max_segments, compressed, False))
    for weights, values in passes:
        found = batches(table, size, ranks, max_segments, compressed, 0)
        first = next(found)
        config.load_checkpoint = weights
        load(config, network, forward, tensors(first))
        writer = Writer(Path(values), progress, 0, row_bytes) if is_first_rank() else None
        for batch in chain([first], found):
            results = forward.predict(*tensors(batch))
            if writer is not None:
                writer.append(batch, results)


if __name__ == "__main__":
    main()
