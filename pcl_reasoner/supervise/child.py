"""A child process of this machine that is killed when its parent dies.

with Child([python, "-m", "pcl_reasoner.worker", "mindformers.yaml"], folder, log, env) as child:
    while child.poll() is None: …
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from pcl_reasoner.supervise.processes import die_with_parent

STOP_SECONDS = 5.0
"""Seconds that a process has to end after SIGTERM; then its group is killed."""


class Child:
    """A running process in its own session. Leaving the context ends it and its process group.

    If the parent is killed, only the process itself is killed with it, not what it started.

    Args:
        words: The command.
        folder: Its working directory.
        log: File that its output is written to; an existing file is overwritten.
        environment: Its complete environment.
    """

    def __init__(
        self, words: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as handle:
            self.process = subprocess.Popen(
                words,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def __enter__(self) -> Child:
        """Return the child."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process."""
        self.stop()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self.process.poll()

    def wait(self, limit: float | None = None) -> int | None:
        """The exit code; None if the process still runs after ``limit`` seconds."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End the process and its group, unless the process has already ended.

        The group gets SIGTERM. If the process still runs after ``seconds``, the group is killed.
        """
        if self.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            if self.wait(seconds) is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
