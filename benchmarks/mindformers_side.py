"""MindFormers' side of a comparison, each in a process of its own.

    python benchmarks/mindformers_side.py train given.json  the train stage
    python benchmarks/mindformers_side.py save YAML CHECKPOINT batches.npz logits.npy
                                                            what its data pipeline gave to the
                                                            model, and what the checkpoint answers

YAML is the train stage's mindformers.yaml; its paths are relative to its folder.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Columns = dict[str, npt.NDArray[Any]]


class StepTimes:
    """Notes when the stage saw each step; it looks twice a second."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """Remember the time of a step that was not seen before."""
        self.seen.setdefault(int(done), time.perf_counter())

    @property
    def seconds(self) -> float | None:
        """Mean seconds a step, without the first, in which the graph is compiled."""
        steps = sorted(step for step in self.seen if step > 0)
        if len(steps) < 2:
            return None
        return (self.seen[steps[-1]] - self.seen[steps[0]]) / (steps[-1] - steps[0])


def train_stage(given_file: str) -> None:
    """Run the train stage: ``{"config", "inputs", "output"}``; adds ``seconds_per_step``."""
    from pcl_reasoner.core.stage import StageContext
    from pcl_reasoner.train.config import TrainConfig
    from pcl_reasoner.train.stage import train

    given = json.loads(Path(given_file).read_text(encoding="utf-8"))
    output, times = Path(given["output"]), StepTimes()
    output.mkdir(parents=True, exist_ok=True)
    context = StageContext("train", output / "quarantined.jsonl", progress=times)
    inputs = {name: Path(path) for name, path in given["inputs"].items()}
    train(TrainConfig(**given["config"]), inputs, output, context)
    given["seconds_per_step"] = times.seconds
    Path(given_file).write_text(json.dumps(given), encoding="utf-8")


def prepare(yaml_file: str) -> Any:
    """Read the YAML and set up the CPU as the entry module does; goes to the YAML's folder."""
    from pcl_reasoner.trainer import mindformers_1_8 as version
    from pcl_reasoner.worker import entry

    os.chdir(Path(yaml_file).resolve().parent)
    entry.import_mindformers()
    config, _ = entry.read_config(Path(yaml_file).name, [], None)
    from mindformers.core.context import build_context

    build_context(config)
    version.install_cpu_operators()
    return config


def batches_of(config: Any) -> Columns:
    """What MindFormers' data pipeline hands to the model: every column [steps, rows, …]."""
    from mindformers.dataset import build_dataset

    # The Trainer does this, too: a YAML has the batch size under runner_config only.
    config.train_dataset_task.dataset_config.batch_size = config.runner_config.batch_size
    dataset = build_dataset(config.train_dataset_task)
    columns: dict[str, list[npt.NDArray[Any]]] = {
        name: [] for name in config.train_dataset.input_columns
    }
    for batch in dataset.create_dict_iterator(num_epochs=1, output_numpy=True):
        for name, values in columns.items():
            values.append(batch[name])
    return {name: np.stack(values) for name, values in columns.items()}


def build_model(config: Any, checkpoint: str | Path) -> Any:
    """The YAML's model with a checkpoint's weights.

    Args:
        config: A MindFormerConfig.
        checkpoint: safetensors under MindFormers' names.
    """
    import mindspore as ms
    from mindformers.models.build_model import build_network

    # The Trainer loads the weights after building, and so do we.
    model = build_network(config.model)
    held = ms.load_checkpoint(str(checkpoint), format="safetensors")
    missing, _ = ms.load_param_into_net(model, held)
    if [name for name in missing if not name.endswith("step_figures")]:
        raise SystemExit(f"{checkpoint}: not all weights are there: {missing}")
    return model


def save(yaml_file: str, checkpoint: str, batch_file: str, logits_file: str) -> None:
    """Save the batches of all steps, and the first one's logits [B, S, V] by a checkpoint."""
    import mindspore as ms
    from logits_cell import Logits

    files = [Path(name).resolve() for name in (checkpoint, batch_file, logits_file)]
    config = prepare(yaml_file)
    batches = batches_of(config)
    np.savez(files[1], **batches)
    model = build_model(config, files[0]).set_train(False)
    keys = ("input_ids", "attention_mask", "position_ids")
    logits = Logits(model)(*(ms.Tensor(batches[key][0]) for key in keys))
    shape = batches["input_ids"][0].shape
    np.save(files[2], logits.astype(ms.float32).asnumpy().reshape(*shape, -1))


COMMANDS: dict[str, Callable[..., None]] = {"train": train_stage, "save": save}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
