"""Runs the training of the train stage on the hosts of the launch file."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pcl_reasoner.core.errors import StageError
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
from pcl_reasoner.weights.stream import read_files, weight_files

_FLOAT32_BYTES = 4
_MINDFORMERS_LOG = "output"
"""MindFormers' folder of logs if LOG_MF_PATH is not set."""
_LOG_DIR = "work/msrun_log"
"""Folder of msrun's logs while it runs; they are then moved to the logs of the run."""


def run_on_hosts(
    config: TrainConfig,
    folders: Sequence[Path],
    output: Path,
    steps: int,
    prepare: Callable[[], int | None],
    env: Mapping[str, str],
    logs: Path,
    context: StageContext,
) -> None:
    """Start training on all hosts, watch it, and restart it after a worker or host is lost.

    Args:
        config: The stage's settings.
        folders: What training reads, the policy first; the same paths on all hosts.
        output: The stage's folder, shared by all hosts.
        steps: Optimizer steps in all.
        prepare: Prepares the files before each start. Returns the step from which training resumes,
            or None if no step is left.
        env: Environment variables; those of the launch file override them.
        logs: Folder for the logs that are kept.
        context: The stage's context, with the placement and the value of ``--start``.

    Raises:
        StageError: The hosts do not have as many devices as the layout has ranks, or run_job
            failed.
    """
    placement = context.placement
    if problems := config.device_problems(placement):
        raise StageError(f"{'; '.join(problems)}. Make them equal.")
    start_mode = str(context.start)
    needs = _needs(config, folders, output, steps, context)
    job = Job(
        placement=placement.model_copy(update={"log_dir": _LOG_DIR}),
        how=start_mode,
        folder=output,
        config_file="mindformers.yaml",
        env={**worker.QUIET, "PCL_RANK_TIMES": str(output / RANK_TIMES), **env},
        metrics=output / "metrics.jsonl",
        steps=steps,
        logs=logs,
        prepare=prepare,
        check=partial(check_hosts, start_mode, needs),
        stopped=output / STOPPED,
    )
    for restart in run_job(job, context.progress):
        context.warn(restart.words)


def _needs(
    config: TrainConfig, folders: Sequence[Path], output: Path, steps: int, context: StageContext
) -> Needs:
    kept = config.most_checkpoints(steps) * checkpoint_bytes(config, folders[0])
    return Needs(
        folder=output,
        files=[file for folder in folders for file in files_of(folder.absolute())],
        bytes=max(0, kept - worker.saved_bytes(output)),
        cache=context.cache or output.parent / ".cache",
    )


def checkpoint_bytes(config: TrainConfig, policy: Path) -> int:
    """Return the bytes of a checkpoint of all ranks: float32 weights and Adam's two moments.

    Args:
        config: The layout. Without optimizer_shard, each data-parallel copy is saved completely.
        policy: Folder of the weights that are trained.
    """
    tensors = read_files(weight_files(policy)).values()
    copies = 1 if config.optimizer_shard else config.data_parallel
    return sum(math.prod(tensor.shape) for tensor in tensors) * 3 * _FLOAT32_BYTES * copies


def move_host_logs(output: Path, context: StageContext) -> None:
    """If hosts were started by hand, move their logs from the stage's folder to the run's logs.

    Args:
        output: The stage's folder.
        context: The stage's context, with the placement.
    """
    placement = context.placement
    log_dir = Path(placement.log_dir)
    parts = log_dir.parts
    elsewhere = log_dir.is_absolute() or not parts or parts[0] in ("..", "checkpoint")
    if len(placement.hosts) == 1 or elsewhere:
        return
    name = output.name.removesuffix(".partial")
    gather(output.parent / "logs" / name, output, placement, 0)
    for folder in (output / log_dir, output / _MINDFORMERS_LOG):
        worker.remove_tree(folder)
