"""Starting the training process, watching it, and taking its last whole checkpoint."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.hosts.msrun import msrun_words
from pcl_reasoner.supervise.child import Child
from pcl_reasoner.weights.conversion import write_mindformers
from pcl_reasoner.weights.slices import rank_files
from pcl_reasoner.weights.stream import is_whole

POLL_SECONDS = 0.5
LOCAL_ADDRESS = "127.0.0.1"
DIE_WITH_PARENT = "PCL_DIE_WITH_PARENT"
"""Environment variable: msrun's workers, which the runner does not start itself, heed it."""
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "GLOG_v": "3",
    DIE_WITH_PARENT: "1",
}
"""Environment of every training process: offline, quiet logs, no process left behind."""


def newest_checkpoint(output_dir: Path) -> Path | None:
    """Rank 0's newest checkpoint that is whole on every rank: none cut off by a kill is taken.

    Args:
        output_dir: MindFormers' output folder.
    """
    return rank_files(output_dir / "checkpoint").get(0)


def step_of(checkpoint: Path) -> int:
    """Optimizer steps that a checkpoint has behind it."""
    from safetensors import safe_open

    with safe_open(checkpoint, framework="np") as opened:
        return int(opened.get_tensor("step_num"))


def remove_broken_checkpoints(output_dir: Path) -> None:
    """Delete checkpoints that are cut off, so that nothing resumes from them."""
    for path in (output_dir / "checkpoint").glob("rank_*/*.safetensors"):
        if not is_whole(path):
            path.chmod(0o644)
            path.unlink()


def starting_point(
    policy: Path, work: Path, ranks: int, resume: Path | None, whole: bool
) -> dict[str, str]:
    """Lay out what training starts from as MindFormers wants it.

    One process takes a Hugging Face folder, or a checkpoint that is not in a rank's folder.
    Several take a folder a rank, and a Hugging Face folder only where they cut weights into slices.

    Args:
        policy: The Hugging Face folder.
        work: MindFormers' output folder.
        ranks: Processes.
        resume: Rank 0's checkpoint to go on from.
        whole: True where every rank holds all weights.

    Returns:
        ``start`` and ``resume`` for ``render``, relative to the folder above ``work``.
    """
    if resume is not None and ranks > 1:
        return {"start": f"{work.name}/checkpoint", "resume": resume.name}
    if resume is not None:
        place = work / "resume" / resume.name
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        os.link(resume, place)
        return {"start": f"{work.name}/resume/{resume.name}", "resume": resume.name}
    if ranks == 1 or not whole:
        return {}
    for rank in range(ranks):
        place = work / "start" / f"rank_{rank}" / "policy.safetensors"
        place.parent.mkdir(parents=True, exist_ok=True)
        if rank == 0:
            write_mindformers(policy, place)
        else:
            place.unlink(missing_ok=True)
            os.link(work / "start" / "rank_0" / place.name, place)
    return {"start": f"{work.name}/start"}


def command(
    config_file: str, devices: int, port: int, log_dir: str, seconds: int = 300
) -> list[str]:
    """The command that trains on this machine: one process, or msrun for several.

    Args:
        config_file: The MindFormers YAML.
        devices: Ranks.
        port: msrun's port.
        log_dir: Where msrun puts worker_N.log.
        seconds: Until all ranks must have joined.
    """
    entry = ["-m", "pcl_reasoner.worker", config_file]
    if devices == 1:
        return [sys.executable, *entry]
    msrun = Path(sys.executable).with_name("msrun")
    words = msrun_words(devices, devices, 0, LOCAL_ADDRESS, port, log_dir, seconds)
    return [str(msrun), *words, "python", *entry]


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The training process's environment: offline, this Python first, quiet logs."""
    here = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}",
        **QUIET,
        **extra,
    }


def run_worker(
    arguments: list[str],
    folder: Path,
    log: Path,
    metrics: Path,
    steps: int,
    env: Mapping[str, str],
    progress: Progress,
) -> None:
    """Run the training process to its end.

    Args:
        arguments: The command.
        folder: Its working directory: the artifact's folder, so that paths in the YAML are short.
        log: File that takes what it prints.
        metrics: The file of steps, for progress.
        steps: Optimizer steps in all.
        env: Further environment.
        progress: Where progress goes.

    Raises:
        StageError: It failed; the last lines of its log are given.
        OSError: The disk is full.
    """
    with Child(arguments, folder, log, environment(env)) as child:
        while (code := child.poll()) is None:
            time.sleep(POLL_SECONDS)
            step, note = _last_step(metrics)
            progress.update(step, steps, "steps", note)
    if code != 0:
        if os.strerror(errno.ENOSPC) in tail(log):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        raise StageError(
            f"the MindFormers process ended with exit code {code}. Its log is {log}; "
            f"the last lines:\n{tail(log)}"
        )


def _last_step(metrics: Path) -> tuple[int, str]:
    """Steps written so far, and a note with the last loss."""
    try:
        lines = metrics.read_bytes().rsplit(b"\n", 2)
        record: dict[str, Any] = json.loads(lines[-2])
    except (OSError, IndexError, ValueError):
        return 0, "importing and compiling"
    return int(record["step"]), f"loss {record['loss']:.4f}"


def tail(log: Path, lines: int = 25) -> str:
    """The last lines of a log, without the empty ones."""
    text = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([line for line in text if line.strip()][-lines:])


def remove_tree(path: Path) -> None:
    """Delete a folder whose files MindFormers made read-only."""

    def make_writable(function: Any, name: str, _: Any) -> None:
        Path(name).chmod(0o700)
        function(name)

    if path.exists():
        shutil.rmtree(path, onerror=make_writable)
