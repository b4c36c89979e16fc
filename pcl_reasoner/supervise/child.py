"""A process of this machine that ends with all that it started, however its starter ends.

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
"""A process's time to end by itself; then its group is killed."""


class Child:
    """A running process, in a session of its own; leaving the context ends it.

    Args:
        words: The command.
        folder: Its working directory.
        log: File that takes what it prints.
        environment: Its whole environment.
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
        """The child."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.stop()

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self.process.poll()

    def wait(self, limit: float | None = None) -> int | None:
        """Its exit code; None where it still runs after ``limit`` seconds."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End it and everything that it started."""
        if self.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            if self.wait(seconds) is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
