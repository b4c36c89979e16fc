"""Training on the hosts of the launch file: what the train stage gives to the room ``hosts``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Source
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.hosts.checks import Needs, check_hosts
from pcl_reasoner.hosts.gather import gather
from pcl_reasoner.hosts.job import Job
from pcl_reasoner.hosts.recover import run_job
from pcl_reasoner.hosts.view import RANK_TIMES
from pcl_reasoner.runner.sources import files_of
from pcl_reasoner.train import worker
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.stopping import STOPPED
from pcl_reasoner.weights.stream import header, weight_files

_FLOAT32_BYTES = 4
_MINDFORMERS_LOG = "output"
"""Where MindFormers logs when nobody told it where."""
_LOG_DIR = "work/msrun_log"
"""msrun's logs while it runs; kept with the logs of the run."""


def run_on_hosts(
    config: TrainConfig,
    inputs: Mapping[str, Path],
    output: Path,
    steps: int,
    prepare: Callable[[], int | None],
    env: Mapping[str, str],
    logs: Path,
    context: StageContext,
) -> None:
    """Start training on all hosts, watch it, and start it again after a loss.

    Args:
        config: The stage's settings.
        inputs: The policy and the packed rows; the same path on all hosts.
        output: The stage's folder, shared by all hosts.
        steps: Optimizer steps in all.
        prepare: As Job has it.
        env: Environment under the launch file's.
        logs: Folder for what is kept of the logs.
        context: With the placement, and how to start.

    Raises:
        StageError: The hosts do not have as many devices as the layout has ranks; else as run_job.
    """
    placement = context.placement
    offered = len(placement.hosts) * placement.devices_per_host
    if offered != config.devices:
        raise StageError(
            f"data x tensor x pipeline parallel = {config.devices} ranks, the launch file offers "
            f"{len(placement.hosts)} hosts x {placement.devices_per_host} devices = {offered}. "
            "Make them equal."
        )
    how = str(context.start)
    needs = Needs(
        folder=output,
        files=[file for role in ("policy", "packs") for file in _files(inputs[role])],
        bytes=checkpoint_bytes(config, inputs["policy"]),
        cache=context.cache or output.parent / ".cache",
    )
    job = Job(
        placement=placement.model_copy(update={"log_dir": _LOG_DIR}),
        how=how,
        folder=output,
        config_file="mindformers.yaml",
        env={**worker.QUIET, "PCL_RANK_TIMES": str(output / RANK_TIMES), **env},
        metrics=output / "metrics.jsonl",
        steps=steps,
        logs=logs,
        prepare=prepare,
        check=partial(check_hosts, how, needs),
        stopped=output / STOPPED,
    )
    for restart in run_job(job, context.progress):
        context.warn(restart.words)


def _files(folder: Path) -> list[Path]:
    return files_of(Source(path=str(folder.absolute())))


def checkpoint_bytes(config: TrainConfig, policy: Path) -> int:
    """Bytes of one checkpoint: float32 weights and Adam's two moments, by every rank that saves.

    Args:
        config: The layout: without optimizer sharding each data-parallel rank saves all.
        policy: The weights that are trained.
    """
    shapes = (entry["shape"] for file in weight_files(policy) for entry in header(file).values())
    copies = 1 if config.optimizer_shard else config.data_parallel
    return sum(math.prod(shape) for shape in shapes) * 3 * _FLOAT32_BYTES * copies


def remove_logs_of_hosts(output: Path, context: StageContext) -> None:
    """Keep the logs of hosts that were started by hand elsewhere: they are no part of the result.

    Args:
        output: The stage's folder.
        context: With the placement.
    """
    placement = context.placement
    place = Path(placement.log_dir)
    elsewhere = place.is_absolute() or not place.parts or place.parts[0] in ("..", "checkpoint")
    if len(placement.hosts) == 1 or elsewhere:
        return
    name = output.name.removesuffix(".partial")
    gather(output.parent / "logs" / name, output, placement, 0)
    for folder in (output / place, output / _MINDFORMERS_LOG):
        worker.remove_tree(folder)
