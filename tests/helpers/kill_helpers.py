"""Killing a train stage in the midst of its steps, with all that it has started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.stopping import read_steps

RUN = """
import json, sys
from pathlib import Path
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.train.stage import TrainConfig, train

given = json.loads(sys.argv[1])
inputs = {name: Path(path) for name, path in given["inputs"].items()}
quarantined = Path(given["output"]) / "quarantined.jsonl"
context = StageContext("train", quarantined, Placement(**given["placement"]))
train(TrainConfig(**given["config"]), inputs, Path(given["output"]), context)
"""


HOLD = """
import os, time

plain = os.fsync

def fsync(handle):
    plain(handle)
    step, _, flag = os.environ.get("HOLD_AT", "").partition(":")
    file = os.readlink(f"/proc/self/fd/{handle}")
    if step and file.endswith("/metrics.jsonl") and open(file).read().count(chr(10)) >= int(step):
        while os.path.exists(flag):
            time.sleep(0.02)

os.fsync = fsync
"""


def holding(folder: Path, step: int) -> dict[str, str]:
    """Environment in which training waits once a step is on the disk, as long as a file is there.

    A step takes milliseconds, so that a test that is late would find the work done.

    Args:
        folder: A new one, whose ``hold`` is that file.
        step: From 1.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HOLD)
    (folder / "hold").touch()
    return {"PYTHONPATH": str(folder), "HOLD_AT": f"{step}:{folder / 'hold'}"}


def kill_at_step(
    folder: Path, config: TrainConfig, inputs: dict[str, Path], step: int, **placement: Any
) -> Path:
    """Run the stage in a process of its own and kill that with SIGKILL once a step is made."""
    output = folder / "train.partial"
    output.mkdir()
    given = {
        "config": config.model_dump(),
        "inputs": {name: str(path) for name, path in inputs.items()},
        "output": str(output),
        "placement": placement,
    }
    held = {**os.environ, **holding(folder / "held", step)}
    runner = subprocess.Popen([sys.executable, "-c", RUN, json.dumps(given)], env=held)
    wait_for_step(output / "metrics.jsonl", step)
    started = {pid: command_of(pid) for pid in descendants(runner.pid)}
    trainers = [pid for pid, command in started.items() if "pcl_reasoner.worker" in command]
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    # Several: msrun itself, its scheduler, and its workers.
    assert len(trainers) == (1 if config.devices == 1 else config.devices + 2)
    assert not [pid for pid in trainers if not ended(pid)]
    # msrun follows its workers' logs by programs that know nothing of it.
    for pid in started.keys() - set(trainers):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert len(read_steps(output / "metrics.jsonl")) == step
    return output


def command_of(pid: int) -> str:
    """Empty for a process that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    """Processes that a process started, and those that they started."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:  # it has ended meanwhile
        return []
    direct = [int(child) for child in text.split()]
    return direct + [other for child in direct for other in descendants(child)]


def wait_for_step(metrics: Path, step: int) -> None:
    """Until a metrics file has so many lines."""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= step:
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} was never made")


def ended(pid: int) -> bool:
    """True when a process ends within five seconds."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False
