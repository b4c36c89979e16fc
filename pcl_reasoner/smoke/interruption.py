"""The parts ``train`` and ``resume``: training is killed after its first save, and resumes.

    train    start, 10 steps, save, 2 steps, SIGKILL of `pclr-ms run`   -> losses of 12 steps
    resume   the same command                                          -> steps 11 to 20

Steps 11 and 12 are made twice. They must have the same losses.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from pcl_reasoner.core.artifact import SECONDS
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.estimate.measured import read_run
from pcl_reasoner.hardware_check.outcome import Check, Outcome, compare
from pcl_reasoner.runner.runner import locked
from pcl_reasoner.smoke.trial import MARK, Trial
from pcl_reasoner.supervise.processes import environment_of
from pcl_reasoner.train import worker
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.render import WORK
from pcl_reasoner.train.stopping import read_steps

STEPS_AFTER_SAVE = 2
GONE_SECONDS = 120.0
"""Seconds in which the processes of a killed run must have ended."""
LOSS_TOLERANCE = {"float32": 1e-6, "float16": 5e-3, "bfloat16": 5e-3}
"""Largest difference between a step's losses before and after the resume, relative."""


def train(trial: Trial) -> Outcome:
    """Train until two steps after the first save, kill `pclr-ms run`, and see that all is gone.

    Raises:
        StageError: Training failed, or ended before it could be killed.
    """
    planned = trial.stage("train")
    with locked(trial.runs / trial.recipe.name):
        shutil.rmtree(planned.partial, ignore_errors=True)  # an interrupted trial's
    trial.log("train").unlink(missing_ok=True)
    began = time.monotonic()
    process = trial.started("train", trial.run_words("train"))
    saved = _saved_steps(trial)
    code = trial.waited(process, lambda: _is_time_to_kill(trial, planned.partial, saved), "steps")
    if code is not None:
        raise StageError(_ended_early(code, trial))
    seconds = time.monotonic() - began
    running = _marked(trial.mark)
    gone = _kill(process, trial)
    losses = [one["loss"] for one in read_steps(planned.partial / "metrics.jsonl")]
    checks = [Check("processes left after SIGKILL", len(gone[1]), 0, len(gone[1]), 0, not gone[1])]
    checks.append(_falls(losses))
    starts = _starts(planned.partial)
    measured = {
        "start_seconds": starts[0]["before"] if starts else None,
        "seconds_until_killed": round(seconds, 1),
        "steps_until_killed": len(losses),
        "saved_step": saved,
        "losses": losses,
        "processes": len(running),
        "seconds_until_all_ended": round(gone[0], 1),
    }
    return Outcome(checks, measured)


def _saved_steps(trial: Trial) -> int:
    config = trial.stage("train").spec.config
    assert isinstance(config, TrainConfig)
    return config.checkpoint_steps


def _is_time_to_kill(trial: Trial, partial: Path, saved: int) -> bool:
    steps = len(read_steps(partial / "metrics.jsonl"))
    trial.progress.update(steps, None, "steps", "until it is killed")
    if steps < saved + STEPS_AFTER_SAVE:
        return False
    return worker.newest_checkpoint(partial / WORK) is not None


def _ended_early(code: int, trial: Trial) -> str:
    if code == 0:
        return (
            "training ended before it could be killed: its steps are too short. Give more of them, "
            "e.g. train.max_steps=100."
        )
    return trial.failure("train", code)


def _kill(process: subprocess.Popen[bytes], trial: Trial) -> tuple[float, list[int]]:
    """Kill the command alone; return the seconds until all its processes ended, and those left."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    began = time.monotonic()
    while (left := _marked(trial.mark)) and time.monotonic() - began < GONE_SECONDS:
        time.sleep(0.1)
    return time.monotonic() - began, left


def _marked(mark: str) -> list[int]:
    """Return the processes of this machine that have the trial's mark."""
    everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [one for one in everyone if environment_of(one).get(MARK) == mark]


def _falls(losses: list[float]) -> Check:
    first, last = losses[0], losses[-1]
    return Check("the loss falls", last, f"below {first:.4f}", last - first, 0, last < first)


def resume(trial: Trial) -> Outcome:
    """Run the same command again, and compare the steps that are made a second time.

    Raises:
        StageError: The command failed.
    """
    before = trial.outcomes["train"]["measured"]
    trial.call("resume", trial.run_words("train", is_again=False))
    folder = trial.stage("train").folder
    steps, starts = read_steps(folder / "metrics.jsonl"), _starts(folder)
    config = trial.stage("train").spec.config
    assert isinstance(config, TrainConfig)
    made = [one["step"] for one in steps]
    whole = made == list(range(1, len(made) + 1)) and len(made) > before["steps_until_killed"]
    again = [one["loss"] for one in steps][: before["steps_until_killed"]]
    tolerance = LOSS_TOLERANCE[config.precision]
    first = starts[-1] if starts else {"step": 0, "before": 0.0}
    resumed = first["step"] - 1
    checks = [
        Check("steps, each once", len(made), f"1 to {len(made)}", 0, 0, whole),
        compare("resumed from step", resumed, before["saved_step"], 0.0),
        compare(
            "losses of the steps before the kill",
            np.array(again),
            np.array(before["losses"]),
            tolerance,
        ),
    ]
    run = read_run(folder / "metrics.jsonl")
    measured = {
        "resumed_from": resumed,
        "start_seconds": first["before"],
        "step_seconds": round(run.seconds, 4),
        "save_seconds": round(run.save, 3) if run.save else None,
        "trained_tokens_per_second": round(
            sum(one["tokens"] for one in steps) / len(steps) / run.seconds
        ),
        "losses": [one["loss"] for one in steps[len(again) :]],
    }
    return Outcome(checks, measured)


def _starts(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of seconds.jsonl that begin a start."""
    return [one for one in read_steps(folder / SECONDS) if one.get("before")]
