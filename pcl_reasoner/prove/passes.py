"""Our passes: the trained checkpoint through MindFormers, as trained and as each suspect says.

    work/pass/rows/              the stored segments, packed
    work/pass/weights/0/…        the checkpoint with a suspect's change; deleted after its pass
    work/pass/values/0.f32       log π of each label
    CACHE/proofs/9f86d0….npy     the same by segment; the name is a hash of all that it depends on

The exported folder is never read here.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.perplexity.forward import run_forward
from pcl_reasoner.perplexity.old_log_probs import (
    Evaluation,
    forward_config,
    sample_values,
    write_rows,
)
from pcl_reasoner.perplexity.old_log_probs_stage import OldLogProbsConfig
from pcl_reasoner.prove.config import ProveConfig
from pcl_reasoner.prove.suspects import Suspect, Tensors
from pcl_reasoner.recheck.difference import Values
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.render import merge, write_yaml
from pcl_reasoner.train.worker import remove_tree
from pcl_reasoner.weights.stream import write_file

_PADDING = 0
"""Token that fills the end of a row; no other token attends to it."""
_DISK_BYTES = 200_000_000_000
"""Changed checkpoints that are on the disk at the same time, in bytes; one is always allowed."""


@dataclass
class Passes:
    """Computes log-probs of the stored segments with the trained checkpoint.

    Args:
        config: The settings of the stage.
        tensors: The checkpoint's tensors, by MindFormers' names.
        identity: A hash of the checkpoint.
        policy: The folder that training started from, for the model's shape.
        segments: The stored segments.
        work: Folder for rows, weights and values.
        log: File for the output of the processes.
        context: Receives progress; has the environment of the processes, and the cache.
    """

    config: ProveConfig
    tensors: Tensors
    identity: str
    policy: Path
    segments: pa.Table
    work: Path
    log: Path
    context: StageContext

    def values(self, suspects: Sequence[Suspect]) -> list[Values]:
        """Return the values of each suspect; all must have the same ``settings``.

        Raises:
            StageError: The forward pass failed.
        """
        files = [self._cached(one) for one in suspects]
        missing = [index for index, file in enumerate(files) if not file.is_file()]
        size = sum(tensor.size for tensor in self.tensors.values())
        together = max(1, _DISK_BYTES // size)
        for start in range(0, len(missing), together):
            part = missing[start : start + together]
            found = self._compute([suspects[index] for index in part])
            for index, values in zip(part, found, strict=True):
                _save(files[index], values)
        return [self._split(np.load(file)) for file in files]

    def _cached(self, suspect: Suspect) -> Path:
        fields = {name: getattr(self.config, name) for name in OldLogProbsConfig.model_fields}
        key = {
            "checkpoint": self.identity,
            "suspect": suspect.name,
            "tokens": self.segments["input_ids"].to_pylist(),
            "settings": ProveConfig(**fields).hashed(),
        }
        cache = self.context.cache or self.work
        return cache / "proofs" / f"{fingerprint(key)}.npy"

    def _split(self, flat: NDArray[np.float32]) -> Values:
        lengths = self.segments["length"].to_numpy() - 1
        return np.split(flat, np.cumsum(lengths)[:-1])

    def _compute(self, suspects: Sequence[Suspect]) -> Iterator[NDArray[np.float32]]:
        """Run one process for all of them, and yield the values of each, joined."""
        remove_tree(self.work / "pass")
        folder = self.work / "pass"
        config = self._trainer(suspects[0].settings)
        evaluation = Evaluation(config, self.policy, self.segments, _PADDING)
        packing = write_rows(evaluation, folder)
        (folder / "values").mkdir()
        passes = []
        for number, suspect in enumerate(suspects):
            # A folder each: MindFormers cuts only folders into the slices of several ranks.
            weights, values = f"weights/{number}", f"values/{number}.f32"
            changed = {**self.tensors, **suspect.weights(self.tensors)}
            (folder / weights).mkdir(parents=True)
            write_file(folder / weights / "model.safetensors", changed, "mindformers")
            passes.append([weights, values])
        (folder / "passes.json").write_text(json.dumps(passes), encoding="utf-8")
        inputs = {"packs": folder / "rows", "policy": self.policy}
        write_yaml(config, inputs, folder, output_dir="output", start=passes[0][0])
        words = ["mindformers.yaml", "passes.json", "progress.jsonl"]
        total, program = len(packing.plan.rows), "pcl_reasoner.worker.forward_each"
        files = (folder, self.log)
        run_forward(config, program, words, *files, total, self.policy, self.context)
        for _, file in passes:
            found = sample_values(packing, folder / file, False)
            yield np.concatenate([values[1:] for (values,) in found])
        remove_tree(folder)

    def _trainer(self, settings: Mapping[str, Any]) -> TrainConfig:
        fields = {name: getattr(self.config, name) for name in OldLogProbsConfig.model_fields}
        if settings:
            changed = {"model": {"model_config": dict(settings)}}
            fields["mindformers"] = merge(fields["mindformers"], changed)
        return forward_config(loss="sft", entropy=False, **fields)


def _save(file: Path, values: NDArray[np.float32]) -> None:
    """Write an array so that nobody sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    with partial.open("wb") as handle:
        np.save(handle, values)
    partial.rename(file)
