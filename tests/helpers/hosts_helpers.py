"""A job whose msrun is a stand-in: steps of 20 ms, checkpoints every 5, and faults on demand."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.hosts.job import Job

HERE = Path(__file__).parent
STEPS = 20


@dataclass
class Bench:
    """A folder with all that a job of the stand-in needs."""

    folder: Path
    steps: int = STEPS

    @property
    def output(self) -> Path:
        return self.folder / "train.partial"

    @property
    def down(self) -> Path:
        return self.folder / "down"

    @property
    def logs(self) -> Path:
        return self.folder / "logs" / "train"

    def job(self, how: str = "local", **changes: Any) -> Job:
        programs = self.folder / "programs"
        path = f"{programs}:{os.environ['PATH']}"
        settings = {
            "hosts": ["127.0.0.1", "127.0.0.2"],
            "notice_seconds": 10,
            "log_dir": "work/msrun_log",
            "env": {"PATH": path, "DOWN": str(self.down)},
        }
        return Job(
            placement=Placement(**settings | changes),
            how=how,
            folder=self.output,
            config_file="m.yaml",
            env={},
            metrics=self.output / "metrics.jsonl",
            steps=self.steps,
            logs=self.logs,
            prepare=self.prepare,
            stopped=self.output / "stopped.txt",
        )

    def prepare(self) -> int | None:
        """Cut the steps after the checkpoint, as the stage and the trainer do."""
        saved = self.output / "saved"
        done = int(saved.read_text()) if saved.exists() else 0
        (self.output / "resume").write_text(str(done))
        metrics = self.output / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True)
        metrics.write_text("".join(lines[:done]))
        return done if done < self.steps else None

    @property
    def made(self) -> list[int]:
        text = (self.output / "metrics.jsonl").read_text()
        return [json.loads(line)["step"] for line in text.splitlines()]

    def started(self, rank: int, start: int) -> list[int]:
        """Processes of a start: the worker, msrun, and one that left its group."""
        text = (self.output / f"started_{rank}_{start}").read_text()
        return [int(word) for word in text.split()]

    def starts(self, rank: int = 0) -> int:
        return len(list(self.output.glob(f"started_{rank}_*")))


def bench(folder: Path, behaviour: dict[str, Any] | None = None, steps: int = STEPS) -> Bench:
    """A fresh bench.

    Args:
        folder: Where.
        behaviour: ``start.rank`` -> what its worker does at which step.
        steps: Optimizer steps in all.
    """
    made = Bench(folder, steps)
    made.output.mkdir(parents=True)
    made.down.mkdir()
    (made.output / "behaviour.json").write_text(json.dumps(behaviour or {}))
    (made.output / "steps.json").write_text(json.dumps(steps))
    (made.output / "metrics.jsonl").touch()
    programs = folder / "programs"
    programs.mkdir()
    msrun = programs / "msrun"
    msrun.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "stand_in_msrun.py"} "$@"\n')
    ssh = programs / "ssh"
    ssh.write_text((HERE / "stand_in_ssh.sh").read_text())
    for program in (msrun, ssh):
        program.chmod(0o755)
    return made


def is_alive(process: int) -> bool:
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def wait_until(true: Any, seconds: float = 30.0) -> None:
    """Until a function gives something true."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.02)
