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
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.train.layout import layout_problems
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
    """Rows per batch of a data-parallel rank."""
    data_parallel: int = Field(1, gt=0)
    """Data-parallel size."""
    model_parallel: int = Field(1, gt=0)
    """Tensor-parallel size. All ranks are on one host."""
    sequence_parallel: bool = False
    """True: activations between layers are split along the sequence."""
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

    @model_validator(mode="after")
    def _layout(self, info: ValidationInfo) -> Self:
        """Report all problems of the layout at once; a recipe's launch file is checked too."""
        ranks, placement = (
            self.data_parallel * self.model_parallel,
            (info.context or {}).get("placement"),
        )
        shape = self.model.model_dump() if self.model else {}
        sizes = {**shape, "batch_size": self.rows, "seq_length": self.seq_length}
        found = layout_problems(sizes, self.model_parallel, 1, self.sequence_parallel)
        if ranks > 1 and self.device == "CPU":
            found.append(f"only Ascend devices share the work, got {ranks} ranks on a CPU")
        if placement and ranks > placement.devices_per_host:
            found.append(
                "all ranks are on one host: data_parallel x model_parallel must be at most the "
                f"launch file's devices_per_host, got {ranks} for {placement.devices_per_host}"
            )
        if found:
            raise ValueError("; ".join(found))
        return self


def old_log_probs(
    config: OldLogProbsConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Compute the log-probs of every sample; write tokenize's columns and the two new ones.

    Raises:
        StageError: A sample is longer than a row, or the forward pass failed.
    """
    import pyarrow as pa

    from pcl_reasoner.core.schemas import OLD_LOG_PROBS
    from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder
    from pcl_reasoner.perplexity.old_log_probs import Evaluation, evaluate, forward_config
    from pcl_reasoner.prompt.trained import copy_prompt

    samples = read_arrow_folder(inputs["samples"])
    meta = json.loads((inputs["samples"] / "meta.json").read_text(encoding="utf-8"))
    train_config = forward_config(loss="sft", entropy=False, **dict(config))
    evaluation = Evaluation(train_config, inputs["policy"], samples, meta["pad_token_id"])
    log = output.parent / "logs" / f"{output.name.removesuffix('.partial')}.log"
    found = evaluate(evaluation, output / WORK, log, context)
    kept_fields = [field for field in samples.schema if field.name not in OLD_LOG_PROBS.names]
    schema = pa.schema([*kept_fields, *OLD_LOG_PROBS])
    kept = write_arrow_folder(output, schema, _with_columns(samples, found, schema))
    shutil.copyfile(inputs["samples"] / "meta.json", output / "meta.json")
    copy_prompt(inputs["samples"], output)
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
