"""One trial: a copy of the undisturbed run is disturbed, taken up again, and compared."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from end_to_end_helpers import MARK, command, environment, processes
from scene import BUILD, Scene, made, shim

PATIENCE = 600
"""Seconds after which a command is taken to hang."""
ATTEMPTS = 20
FIRM, FOUND, BAD = "same result", "found", "bad"
"""Verdicts: the result is the undisturbed one; an error said what is wrong; neither."""


class Bad(Exception):
    """What must not happen; the text says what was seen."""


class NotReached(Exception):
    """The command ended before the disturbance came: another one is chosen."""


@dataclass
class Outcome:
    """How a trial ended.

    Args:
        target: What was disturbed, and how.
        verdict: FIRM, FOUND or BAD.
        note: Details, for a person.
        commands: Command lines in their order.
    """

    target: str
    verdict: str
    note: str = ""
    commands: list[str] = field(default_factory=list)


@dataclass
class Answer:
    """How a command ended.

    Args:
        code: Its exit code; negative: the signal that ended it.
        text: What it printed.
    """

    code: int
    text: str


class Work:
    """A copy of the undisturbed run, and the commands that ran on it.

    Args:
        scene: The undisturbed run.
        folder: A new folder.
        rng: Source of every choice of the trial.

    Attributes:
        before: Words before every command, e.g. of a program that takes permissions away.
    """

    def __init__(self, scene: Scene, folder: Path, rng: random.Random) -> None:
        self.scene, self.folder, self.rng = scene, folder, rng
        self.commands: list[str] = []
        self.target = ""
        self.before: list[str] = []
        self.state = folder / "state"
        folder.mkdir(parents=True)

    @property
    def runs(self) -> Path:
        """The copy of the run."""
        return self.folder / "runs"

    def copy_runs(self) -> None:
        """Copy the undisturbed run."""
        shutil.copytree(self.scene.runs, self.runs, symlinks=True)

    def recipe(self, title: str) -> Path:
        """The recipe of a stage that is given as ``recipe/stage``."""
        return self.scene.recipe(title.split("/")[0])

    def call(self, *words: str | Path, **more: str) -> Answer:
        """Run ``pclr-ms`` to its end, and check what every end must be like."""
        answer = self.ended(self.start(*words, **more))
        self.must_be_sane(answer)
        return answer

    def start(self, *words: str | Path, **more: str) -> subprocess.Popen[str]:
        """Start ``pclr-ms``."""
        said = " ".join(f"{name}={value}" for name, value in sorted(more.items()))
        parts = [said, *self.before, "pclr-ms", *map(str, words)]
        self.commands.append(" ".join(parts).strip())
        return subprocess.Popen(
            [*self.before, *command(*words)],
            env=environment(**{MARK: str(self.folder), "HF_HUB_OFFLINE": "1"}, **more),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def ended(self, process: subprocess.Popen[str]) -> Answer:
        """Wait for the end of a command and of all that it started."""
        try:
            text, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as error:
            self.kill_all()
            raise Bad(f"no end after {PATIENCE} s: {self.commands[-1]}") from error
        return Answer(process.returncode, text)

    def kill_all(self) -> None:
        """Kill every process of the trial, as if the machine had lost its power."""
        while found := processes(str(self.folder)):
            for process in found:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)

    def must_be_sane(self, answer: Answer, killed: bool = False) -> None:
        """No traceback, no strange exit code, no process left, nothing written elsewhere.

        Args:
            answer: How the command ended.
            killed: It may have been killed.
        """
        if "Traceback (most recent call last)" in answer.text:
            raise Bad(f"a traceback:\n{answer.text}")
        if answer.code not in (0, 1, 2, 3) and not (killed and answer.code == -signal.SIGKILL):
            raise Bad(f"exit code {answer.code}:\n{answer.text}")
        until = time.monotonic() + 15
        while (left := processes(str(self.folder))) and time.monotonic() < until:
            time.sleep(0.05)
        if left:
            self.kill_all()
            raise Bad(f"processes are left: {left}")
        known = {"runs", "state", "output", "hosts_launch.yaml", "served_launch.yaml"}
        if more := {one.name for one in self.folder.iterdir()} - known:
            raise Bad(f"written outside of the run folder: {sorted(more)}")

    def must_be_whole(self, titles: Sequence[str] | None = None) -> None:
        """The run is what the undisturbed one is, and nothing half-done is left.

        Args:
            titles: The stages that are compared; None: all of them.
        """
        if partial := sorted(one.name for one in self.runs.glob("*/*.partial")):
            raise Bad(f"left: {partial}")
        try:
            now = made(self.runs)
        except (AssertionError, ValueError) as error:
            raise Bad(f"not as its manifest says: {error}") from error
        for title in titles or self.scene.made:
            if now.get(title) != self.scene.made[title]:
                raise Bad(f"{title} differs: {now.get(title)} against {self.scene.made[title]}")
        if more := now.keys() - self.scene.made.keys():
            raise Bad(f"made in addition: {sorted(more)}")

    def disturbance(self, below: Path, how: str, at: int, **more: str) -> dict[str, str]:
        """Environment that disturbs one operation on the files of a folder."""
        self.state.write_bytes(bytes(16))
        return {
            "LD_PRELOAD": str(shim()),
            "DRILL_BELOW": str(below),
            "DRILL_STATE": str(self.state),
            "DRILL_HOW": how,
            "DRILL_AT": str(at),
            **more,
        }

    def operations(self) -> int:
        """The number of operations so far."""
        return int.from_bytes(self.state.read_bytes()[:8], "little")

    def is_reached(self) -> bool:
        """Whether the operation has come."""
        return any(self.state.read_bytes()[8:])


Trial = Callable[[Work], Outcome]


def attempt(trial: Trial, scene: Scene, seed: str) -> Outcome:
    """Run one trial; what must not happen is its verdict. The folder of a bad one is kept."""
    folder = BUILD / "work" / seed.replace("/", "-")
    rng = random.Random(seed)
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        work = Work(scene, folder, rng)
        try:
            outcome = trial(work)
        except NotReached:
            continue
        except Bad as error:
            return Outcome(work.target, BAD, str(error), work.commands)
        except Exception:  # an error of the drill must not end a drill of days
            return Outcome(work.target, BAD, traceback.format_exc(), work.commands)
        shutil.rmtree(folder, ignore_errors=True)
        outcome.commands = work.commands
        return outcome
    return Outcome(work.target, BAD, f"{ATTEMPTS} times it was not reached", work.commands)


def weighted(rng: random.Random, seconds: Mapping[str, float]) -> str:
    """Choose a name; what takes long is chosen seldom."""
    names = sorted(seconds)
    return rng.choices(names, [1 / (1 + seconds[name]) for name in names])[0]


class Counts:
    """Remembers how many operations a command makes, so that it is counted once.

    Args:
        path: A JSON file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, name: str) -> int | None:
        """The number for a command; None if it is not known."""
        found: int | None = self._read().get(name)
        return found

    def keep(self, name: str, number: int) -> None:
        """Remember a number."""
        self.path.write_text(json.dumps({**self._read(), name: number}))

    def _read(self) -> dict[str, int]:
        return json.loads(self.path.read_text()) if self.path.exists() else {}
