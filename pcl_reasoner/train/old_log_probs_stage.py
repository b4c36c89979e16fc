"""Stage ``old_log_probs``: every token's log-prob under the policy that training starts from.

It adds two columns to those of tokenize:

    old_log_probs       [0, 0, −0.41, …]   log π of each trained token, 0 for other tokens
    old_log_probs_mean  −0.37              mean of old_log_probs over the trained tokens

The values come from a forward pass of the trainer's own model at temperature 1. The server's
log-probs are never used: its samples were drawn at another temperature and with top-k and top-p.
Losses that compare the trained policy with the starting policy need this stage. Put it between
tokenize and pack.

    old_log_probs: {seq_length: 51200}
    pack: {inputs: {samples: old_log_probs}, seq_length: 51200}
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.weights.model_config import ModelShape

WORK = "work"
_SAMPLES_PER_BATCH = 256


class OldLogProbsConfig(StageConfig):
    """Settings of ``old_log_probs``; fields as in ``train``."""

    seq_length: int = Field(gt=0)
    """Tokens per row; no sample may be longer."""
    max_segments: int = Field(128, gt=0, le=128)
    """Limit on the segments per row."""
    rows: int = Field(1, gt=0)
    """Rows per batch of the forward pass."""
    model: ModelShape | None = None
    """Expected shape of the model; it must be the shape in the weights' config.json."""
    device: Literal["CPU", "Ascend"] = "Ascend"
    """MindSpore's device target."""
    precision: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Data type of the forward pass."""
    compressed_mask: bool = True
    """End-of-document-compressed mask (TND attention); false for one dense mask per row."""
    max_device_memory: str = "58GB"
    """Device memory that MindSpore may use."""
    mindformers: dict[str, Any] = Field(default_factory=dict)
    """Native MindFormers keys, merged last and unchanged."""


def old_log_probs(
    config: OldLogProbsConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Compute the log-probs of every sample; write tokenize's columns and the two new ones.

    Raises:
        StageError: The launch file names several hosts, a sample is longer than a row, or the
            forward pass failed.
    """
    import pyarrow as pa

    from pcl_reasoner.core.schemas import OLD_LOG_PROBS
    from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder
    from pcl_reasoner.train.old_log_probs import Evaluation, evaluate, forward_config

    hosts = context.placement.hosts
    if len(hosts) > 1:
        raise StageError(
            f"the launch file names {len(hosts)} hosts, and this stage runs in one process on one "
            "device. Run it on a machine whose device holds the model, with a launch file of one "
            "host, and give pack its folder as a source."
        )
    samples = read_arrow_folder(inputs["samples"])
    meta = json.loads((inputs["samples"] / "meta.json").read_text(encoding="utf-8"))
    train_config = forward_config(loss="sft", entropy=False, **dict(config))
    evaluation = Evaluation(train_config, inputs["policy"], samples, meta["pad_token_id"])
    log = output.parent / "logs" / f"{output.name.removesuffix('.partial')}.log"
    env = context.placement.env
    found = evaluate(evaluation, output / WORK, log, env, context.progress)
    kept_fields = [field for field in samples.schema if field.name not in OLD_LOG_PROBS.names]
    schema = pa.schema([*kept_fields, *OLD_LOG_PROBS])
    kept = write_arrow_folder(output, schema, _with_columns(samples, found, schema))
    shutil.copyfile(inputs["samples"] / "meta.json", output / "meta.json")
    shutil.rmtree(output / WORK)
    return Counts(unit="segments", read=samples.num_rows, kept=kept)


def _with_columns(samples: Any, found: Iterator[Any], schema: Any) -> Iterator[Any]:
    """Yield the samples with their log-probs, in batches."""
    import numpy as np
    import pyarrow as pa

    from pcl_reasoner.pack.rows import list_at
    from pcl_reasoner.pack.tokens import IGNORED

    labels = samples["labels"]
    for start in range(0, samples.num_rows, _SAMPLES_PER_BATCH):
        part = samples.slice(start, _SAMPLES_PER_BATCH).combine_chunks()
        log_probs, means = [], []
        for index in range(start, start + part.num_rows):
            (values,) = next(found)
            trained = int((list_at(labels, index)[1:] != IGNORED).sum())
            log_probs.append(values)
            means.append(values.sum(dtype=np.float64) / max(1, trained))
        columns = {name: part[name] for name in schema.names if name in part.column_names}
        columns["old_log_probs"] = pa.array(log_probs, pa.list_(pa.float32()))
        columns["old_log_probs_mean"] = pa.array(np.asarray(means, np.float32))
        table = pa.table(columns, schema=schema)
        yield from table.to_batches()
