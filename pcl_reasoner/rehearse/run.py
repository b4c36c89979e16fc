"""Runs the scaled training twice: in one process, and as ranks in the recipe's layout.

    rehearsal/train/policy/       a tiny model with random weights
                    rows/         packed rows
                    one_process/  MindFormers' output folder, metrics and log of the one process;
                                  for a stage rl also its rounds, with the weights after each
                    ranks/        the same of the ranks

Both run the training program that a cluster runs, by msrun and MindFormers' Trainer, from a
MindFormers YAML for Ascend, as ranks on a CPU (cpu_ranks/). Both use the same kernels, so a
difference is due to the layout.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.cpu_ranks.extension import build
from pcl_reasoner.cpu_ranks.variables import variables
from pcl_reasoner.hosts.msrun import training_environment
from pcl_reasoner.rehearse.rounds import hand_over, row_counts, write_run
from pcl_reasoner.rehearse.rows import write_rows
from pcl_reasoner.rehearse.scale import Scaled
from pcl_reasoner.rehearse.weights import write_policy
from pcl_reasoner.serving.serve_command import free_port
from pcl_reasoner.train import worker
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.render import WORK, write_yaml
from pcl_reasoner.train.stopping import read_steps

ONE_PROCESS, RANKS = "one_process", "ranks"
LOG, METRICS = "log.txt", "metrics.jsonl"


@dataclass(frozen=True)
class Finished:
    """A run that ended.

    Args:
        folder: Its folder.
        seconds: Its time, including imports and compiling.
        steps: The lines of its metrics.jsonl.
    """

    folder: Path
    seconds: float
    steps: list[dict[str, Any]]


def rehearse(
    scaled: Scaled, folder: Path, packs: Path | None, cache: Path, progress: Progress
) -> tuple[Finished, Finished]:
    """Train in one process and as ranks; return both runs.

    Args:
        scaled: The scaled settings.
        folder: Output folder; an existing one is deleted first.
        packs: The recipe's packed rows; None for artificial rows.
        cache: Folder that keeps the built extension.
        progress: Where progress is reported.

    Raises:
        StageError: The extension cannot be built, or a run failed.
    """
    library = build(cache)
    worker.remove_tree(folder)
    config = scaled.config
    count = sum(row_counts(scaled)) if scaled.rounds else config.global_batch_size * steps(config)
    write_rows(folder / "rows", config, packs, count)
    write_policy(folder / "policy", scaled.shape, config.seed)
    one = _run(scaled, scaled.one_process(), folder / ONE_PROCESS, library, progress)
    return one, _run(scaled, config, folder / RANKS, library, progress)


def steps(config: TrainConfig) -> int:
    """Return the optimizer steps of a rehearsal."""
    assert config.max_steps is not None
    return config.max_steps


def _run(
    scaled: Scaled, config: TrainConfig, folder: Path, library: Path, progress: Progress
) -> Finished:
    """Train with the scaled settings, in the layout of ``config``."""
    folder.mkdir()
    rows, policy = folder.parent / "rows", folder.parent / "policy"
    if scaled.rounds is None:
        write_yaml(config, {"packs": rows, "policy": policy}, folder)
    else:
        write_run(scaled, config, rows, policy, folder)
    seconds = _train(config, folder, library, progress)
    if scaled.rounds is not None:
        hand_over(scaled, config, policy, folder)
    return Finished(folder, seconds, read_steps(folder / METRICS))


def _train(config: TrainConfig, folder: Path, library: Path, progress: Progress) -> float:
    """Run the training program on the folder's mindformers.yaml; return its seconds."""
    log_dir = f"{WORK}/msrun_log"
    arguments = worker.command(["mindformers.yaml"], config.devices, free_port(), log_dir)
    metrics = folder / METRICS
    began = time.monotonic()
    # A socket's path is short, and the output folder's may be long.
    with tempfile.TemporaryDirectory(prefix="ranks-") as sockets:
        env = training_environment(folder, config.devices, config.devices)
        env |= variables(library, Path(sockets))
        log = folder / LOG
        try:
            worker.run_worker(arguments, folder, log, metrics, steps(config), env, progress)
        except StageError as error:
            reasons = _reasons(folder / log_dir)
            if not reasons:
                raise
            raise StageError(
                f"{config.devices} ranks: training failed. Read the logs in {folder / log_dir}; "
                "the last error of each rank:\n" + "\n".join(reasons)
            ) from error
    return time.monotonic() - began


def _reasons(log_dir: Path) -> list[str]:
    """Return the last error line of each rank's log."""
    found = []
    for log in sorted(log_dir.glob("worker_*.log")):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line for line in lines if "Error: " in line and not line.startswith((" ", "["))]
        if errors:
            found.append(f"{log.stem}: {errors[-1]}")
    return found
