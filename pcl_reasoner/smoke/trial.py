"""One smoke test: where it runs, what it runs, and what it has found so far.

    runs/smoke/smoke/outcomes.json  {"key": "5c18d5f0", "parts": {"weights": {"status": "ok", …}}}
    runs/smoke/smoke/train.log      what the command of the part ``train`` printed

A part that is ok is not run again, unless settings, launch file or package have changed, or a part
that it needs is run again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pcl_reasoner import __version__
from pcl_reasoner.core.artifact import fingerprint, write_json
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.files import find, last_lines
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.runner.plan import Plan, PlannedStage, make_plan
from pcl_reasoner.runner.recipe import Recipe, load_recipe
from pcl_reasoner.supervise.processes import die_with_parent

RECIPE = "smoke"
MARK = "PCL_SMOKE"
"""Environment variable that marks every process of a trial on this machine."""
LOG_LINES = 40
POLL_SECONDS = 0.05
_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Trial:
    """The settings of a smoke test, and its commands.

    Args:
        launch: The launch file, by path or shipped name.
        model: A Hugging Face folder; None for random weights.
        start: As in ``pclr-ms run --start``.
        overrides: The user's own ``stage.key=value``.
        runs: Folder of all runs, absolute.
        limit: Seconds after which a part is ended.
        progress: Receives progress.
    """

    launch: str
    model: Path | None
    start: str | None
    overrides: tuple[str, ...]
    runs: Path
    limit: float
    progress: Progress
    mark: str = field(default_factory=lambda: f"{os.getpid()}-{time.time_ns()}")
    """The value of MARK in its processes' environment."""
    outcomes: dict[str, Any] = field(default_factory=dict)
    """Part -> its entry in the report, of the parts that have ended."""

    @property
    def folder(self) -> Path:
        """Folder of the trial's own files."""
        return self.runs / RECIPE / RECIPE

    @property
    def settings(self) -> tuple[str, ...]:
        """The overrides of the recipe; the shape of the user's model is that of its config.json."""
        own = (f"sources.policy.path={self.model}", "train.model=null") if self.model else ()
        return (*own, *self.overrides)

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe with the launch file."""
        return load_recipe(RECIPE, launch=self.launch, overrides=self.settings)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the recipe."""
        return make_plan(self.recipe, self.runs)

    def stage(self, name: str) -> PlannedStage:
        """A stage of the plan."""
        return next(one for one in self.plan.stages if one.spec.name == name)

    def manifest(self, name: str) -> dict[str, Any]:
        """The manifest of a finished stage."""
        found = self.stage(name).manifest()
        assert found is not None
        return found

    def words(self, command: str, *more: str) -> list[str]:
        """Return the arguments of ``pclr-ms`` for a command about the recipe."""
        return [command, RECIPE, *self.settings, "--launch", self.launch, *more]

    def run_words(self, until: str, is_again: bool = True) -> list[str]:
        """Return the arguments of ``pclr-ms run`` up to a stage, which runs also if it is done."""
        start = ("--start", self.start) if self.start else ()
        again = ("--from", until) if is_again else ()
        return self.words("run", "--runs", str(self.runs), "--until", until, *again, *start)

    def started(self, part: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start ``pclr-ms`` in a process of its own, which ends with this one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log(part).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pcl_reasoner.cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK: self.mark},
                start_new_session=True,  # Ctrl-C is passed on once, by `waited`
                preexec_fn=die_with_parent,
            )

    def log(self, part: str) -> Path:
        """The file for the output of a part's command."""
        return self.folder / f"{part}.log"

    def call(self, part: str, words: Sequence[str]) -> None:
        """Run ``pclr-ms`` to its end; its output is in the part's log.

        Raises:
            StageError: It failed, or took longer than the limit; the message has its last lines.
        """
        self.log(part).unlink(missing_ok=True)
        process = self.started(part, words)
        code = self.waited(process, lambda: process.poll() is not None)
        if code:
            raise StageError(self.failure(part, code))

    def failure(self, part: str, code: int) -> str:
        """Return what a failed command said: its error, or the last lines of its log."""
        lines = last_lines(self.log(part), LOG_LINES).splitlines()
        errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
        told = lines[errors[-1] :] if errors else lines
        return "\n".join([*told, f"exit code {code}"])

    def waited(
        self, process: subprocess.Popen[bytes], until: Callable[[], bool], unit: str = "seconds"
    ) -> int | None:
        """Wait for a condition, or for the process to end; return its exit code, None if it runs.

        Raises:
            StageError: The limit has passed; the process was ended.
        """
        began = time.monotonic()
        try:
            while process.poll() is None and not until():
                seconds = time.monotonic() - began
                if seconds > self.limit:
                    raise StageError(f"not ended after {self.limit:g} s; it was ended.")
                if unit == "seconds":
                    self.progress.update(round(seconds), None, unit)
                time.sleep(POLL_SECONDS)
        except BaseException:
            ended(process)
            raise
        return process.poll()


def ended(process: subprocess.Popen[bytes]) -> None:
    """End ``pclr-ms`` as Ctrl-C does, so that it ends its own processes in order."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Kept:
    """The parts that were ok before, for the same settings.

    Args:
        trial: The trial.
        again: Forget them.
    """

    def __init__(self, trial: Trial, again: bool) -> None:
        self.file = trial.folder / "outcomes.json"
        launch = find(trial.launch, "launch").read_text(encoding="utf-8")
        words = (str(trial.model), str(trial.start), *trial.overrides)
        planned = [one.fingerprint for one in trial.plan.stages]
        self.key = fingerprint([__version__, launch, words, planned])
        self.parts: dict[str, Any] = {}
        if not again:
            with suppress(OSError, ValueError, KeyError):
                found = json.loads(self.file.read_text(encoding="utf-8"))
                self.parts = found["parts"] if found["key"] == self.key else {}

    def keep(self, entry: dict[str, Any]) -> None:
        """Remember a part that is ok."""
        self.parts[entry["name"]] = entry
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.file, {"key": self.key, "parts": self.parts})


def refuse_impossible(trial: Trial) -> None:
    """Refuse a launch file of several hosts without ``--start``, and a model that is not there.

    Raises:
        InputError: One of these.
    """
    hosts = trial.recipe.launch.placement.hosts
    if len(hosts) > 1 and trial.start is None:
        raise InputError(
            f"{trial.launch}: names {len(hosts)} hosts, and without --start nothing is started "
            "there. Give --start ssh, or the launch file of one node."
        )
    if trial.model is not None and not trial.model.is_dir():
        raise InputError(f"--model {trial.model}: no such folder. Name a Hugging Face folder.")
