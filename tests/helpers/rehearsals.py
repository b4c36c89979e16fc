"""Layouts that tests rehearse, and the train stage on ranks."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from run_ranks import CACHE

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import NoProgress, StageContext
from pcl_reasoner.cpu_ranks.extension import build
from pcl_reasoner.cpu_ranks.variables import variables
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.rehearse.compare import Comparison, compare
from pcl_reasoner.rehearse.rounds import scale_rounds
from pcl_reasoner.rehearse.rows import write_rows
from pcl_reasoner.rehearse.run import rehearse, steps
from pcl_reasoner.rehearse.scale import Scaled, scale
from pcl_reasoner.rehearse.weights import write_policy
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.machine import MachineConfig

OLD_SCORES = Path(__file__).parents[1] / "rehearse" / "old_scores"
"""In PYTHONPATH it puts back the log-probs whose gradients MindSpore makes wrong."""

LAYOUTS: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "DP2 optimizer": (2, 1, 1, {"optimizer_shard": True}),
    "TP2 sequence": (1, 2, 1, {"sequence_parallel": True}),
    "DP2 TP2": (2, 2, 1, {}),
    "DP2 TP2 optimizer": (2, 2, 1, {"optimizer_shard": True}),
    "DP2 TP2 sequence": (2, 2, 1, {"sequence_parallel": True}),
    "DP2 TP2 both": (2, 2, 1, {"optimizer_shard": True, "sequence_parallel": True}),
    "DP2 TP2 accumulation": (
        *(2, 2, 1),
        {"global_batch_size": 8, "micro_batch_size": 2, "compressed_mask": True},
    ),
    "PP2": (1, 1, 2, {}),
    "TP2 PP2": (1, 2, 2, {}),
    "TP2 PP2 sequence": (1, 2, 2, {"sequence_parallel": True}),
    "DP2 TP2 PP2": (2, 2, 2, {}),
    "DP2 TP2 PP2 optimizer": (2, 2, 2, {"optimizer_shard": True}),
    "DP2 TP2 PP2 sequence": (2, 2, 2, {"sequence_parallel": True}),
    "DP2 TP2 PP2 both, rows of two": (
        *(2, 2, 2),
        {
            "optimizer_shard": True,
            "sequence_parallel": True,
            "micro_batch_size": 2,
            "global_batch_size": 8,
        },
    ),
    "DP2 TP2 PP2 float16 scale, recompute, balance": (
        *(2, 2, 2),
        {"precision": "float16", "recompute": True, "balance_rows": True},
    ),
}


def cluster_config(data: int, tensor: int, stages: int, **settings: Any) -> TrainConfig:
    """Settings of a cluster's training in a layout; with ranks as rows, a mask that compiles."""
    values: dict[str, Any] = {
        "loss": "opg",
        "seed": 0,
        "epochs": 1,
        "learning_rate": 1e-4,
        "learning_rate_end": 1e-5,
        "warmup_ratio": 0.0,
        "global_batch_size": data * stages,
        "micro_batch_size": 1,
        "seq_length": 256,
        "device": "Ascend",
        "compressed_mask": data > 1 and stages > 1,
        "data_parallel": data,
        "model_parallel": tensor,
        "pipeline_stage": stages,
    }
    return TrainConfig(**(values | settings))


def round_config(data: int, tensor: int, stages: int, **settings: Any) -> RlConfig:
    """Settings of a cluster's stage rl in a layout; with ranks as rows, a mask that compiles."""
    values: dict[str, Any] = {
        "seed": 0,
        "learning_rate": 1e-4,
        "max_new_tokens": 64,
        "max_model_len": 256,
        "row_tokens": 256,
        "rows": data * stages,
        "device": "Ascend",
        "compressed_mask": data > 1 and stages > 1,
        "data_parallel": data,
        "model_parallel": tensor,
        "pipeline_stage": stages,
        "plateau": None,
    }
    return RlConfig(**(values | settings))


def rehearsed(config: TrainConfig | RlConfig, folder: Path, steps: int = 2) -> Comparison:
    """Rehearse on artificial rows, and compare; a step of a stage rl is a round."""
    if isinstance(config, RlConfig):
        scaled = scale_rounds(config, None, 8, steps)
    else:
        scaled = scale(config, None, 8, steps)
    return compare(*rehearse(scaled, folder, None, CACHE, NoProgress()))


def stage_inputs(scaled: Scaled, folder: Path) -> dict[str, Path]:
    """The inputs of a train stage at the size of a rehearsal."""
    config = scaled.config
    write_policy(folder / "policy", scaled.shape, config.seed)
    write_rows(folder / "rows", config, None, steps(config) * config.global_batch_size)
    accounting = {"rows": read_arrow_folder(folder / "rows").num_rows}
    accounting["seq_length"] = config.seq_length
    (folder / "rows" / "accounting.json").write_text(json.dumps(accounting))
    return {"packs": folder / "rows", "policy": folder / "policy"}


@contextmanager
def on_ranks(
    config: MachineConfig, folder: Path, port: int, hosts: list[str] | None = None
) -> Iterator[StageContext]:
    """The context of a stage whose launch file runs its ranks on this machine's CPU."""
    hosts = hosts or ["localhost"]
    with tempfile.TemporaryDirectory(prefix="ranks-") as sockets:
        placement = Placement(
            hosts=hosts,
            devices_per_host=config.devices // len(hosts),
            master_port=port,
            cluster_time_out=300,
            env=variables(build(CACHE), Path(sockets)),
        )
        start = "local" if len(hosts) > 1 else None
        yield StageContext("train", folder / "quarantined.jsonl", placement, start=start)
