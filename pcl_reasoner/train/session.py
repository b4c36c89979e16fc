"""Starts the training process on this machine or on hosts, and finds where it begins."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.hosts.msrun import training_environment
from pcl_reasoner.train import worker
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.on_hosts import run_on_hosts
from pcl_reasoner.train.render import WORK


def starting_paths(
    config: TrainConfig, policy: Path, work: Path, warn: Callable[[str], None]
) -> tuple[dict[str, str], int]:
    """Prepare training from the last complete checkpoint, or from the policy if there is none.

    Args:
        config: The layout and the device.
        policy: The Hugging Face folder that is trained.
        work: MindFormers' output folder.
        warn: Called with a message if a checkpoint is damaged.

    Returns:
        Entries of ``render``'s paths, and the number of MindFormers' steps that are done.
    """
    worker.remove_broken_checkpoints(work, warn)
    resume = worker.newest_checkpoint(work)
    complete = config.device == "CPU"
    start = worker.starting_point(policy, work, config.devices, resume, complete)
    return start, worker.step_of(resume) if resume else 0


def run_training(
    config: TrainConfig,
    folders: Sequence[Path],
    output: Path,
    steps: int,
    prepare: Callable[[], int | None],
    context: StageContext,
) -> None:
    """Train on this machine, or on the hosts that the launch file names.

    Args:
        config: The layout and the device.
        folders: What training reads: the policy, then the rows.
        output: The stage's folder, with mindformers.yaml.
        steps: Lines of metrics.jsonl in the end, for progress.
        prepare: Prepares the files before a start; only hosts call it, before each start. Returns
            the step from which training resumes, or None if no step is left.
        context: The stage's context.

    Raises:
        StageError: Training failed.
    """
    name = output.name.removesuffix(".partial")
    logs = output.parent / "logs"
    per_host = context.placement.devices_per_host
    env = training_environment(output.absolute(), config.devices, per_host)
    if context.start is not None:
        run_on_hosts(config, folders, output, steps, prepare, env, logs / name, context)
        return
    _check_local(context)
    placement = context.placement
    settings = (placement.master_port, f"{WORK}/msrun_log", placement.cluster_time_out)
    python = worker.interpreter(placement)
    arguments = worker.command(["mindformers.yaml"], config.devices, *settings, python=python)
    metrics = output / "metrics.jsonl"
    log = logs / f"{name}.log"
    worker.run_worker(arguments, output, log, metrics, steps, env, context.progress, placement)


def _check_local(context: StageContext) -> None:
    hosts = context.placement.hosts
    if len(hosts) > 1:
        raise StageError(
            f"the launch file names {len(hosts)} hosts, and without --start nothing is started "
            "there. The configuration is written. Give --start ssh to start and watch all hosts "
            "from here; or start the scripts that were written for them (--dry-run names them "
            "again) and, when training has ended, run the same command again."
        )
