"""The live progress line of training on several hosts.

412/8000 steps, 4 min 3 s left, loss 0.4812, 3.10 s a step, 268,000 tokens/s, 16 of 16 hosts,
rank 37 takes 1.3 x the median, node05: [ERROR] …
"""

import json
import math
import statistics
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pcl_reasoner.hosts.decide import HostState

RANK_TIMES = "work/rank_times"
"""Folder, relative to the stage's folder; one file per rank has the seconds of its last step."""
_STEPS_KEPT = 20
_TAIL_BYTES = 1 << 16
_COMPLAINT_SIGNS = 80
_RANKS_SECONDS = 5.0
"""Time between two reads of the ranks' files: there may be hundreds, on a network file system."""
_SLOW = 1.1
"""A rank is shown if its step takes at least this many times the median."""


class View:
    """Reads the files that training writes, while it runs.

    Args:
        metrics: metrics.jsonl, with one line per optimizer step.
        folder: The stage's folder.
        steps: Total number of optimizer steps.
    """

    def __init__(self, metrics: Path, folder: Path, steps: int) -> None:
        self.metrics, self.folder, self.steps = metrics, folder, steps
        self.record = self._last_records()[-1]
        self.step_at: float | None = None
        """When this launch attempt last completed a step (monotonic seconds); None before any."""
        self._tokens = 0
        self._seen: deque[tuple[float, int, int]] = deque(maxlen=_STEPS_KEPT)
        """(time at which the step was read, step, tokens of this launch attempt up to the step)."""
        self._ranks_at = -math.inf
        self._slow: list[str] = []

    @property
    def step(self) -> int:
        """The last optimizer step completed."""
        return int(self.record["step"])

    def look(self, now: float) -> None:
        """Read the metrics added since the last call.

        Args:
            now: The current time (monotonic seconds).
        """
        records = self._last_records()
        last = records[-1]
        if last["step"] > self.step:
            added = [record for record in records if record["step"] > self.step]
            self._tokens += sum(int(record.get("tokens", 0)) for record in added)
            self._seen.append((now, last["step"], self._tokens))
            self.step_at = now
        # The step is lower if a restart has removed the steps after its checkpoint.
        self.record = last

    def _last_records(self) -> list[dict[str, Any]]:
        """Return the last complete lines of the metrics, parsed; without any, ``[{"step": 0}]``."""
        try:
            with self.metrics.open("rb") as handle:
                size = handle.seek(0, 2)
                handle.seek(max(0, size - _TAIL_BYTES))
                text = handle.read()
        except OSError:
            text = b""
        found = []
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            with suppress(ValueError):  # the first line may be incomplete
                found.append(json.loads(line))
        return found or [{"step": 0}]

    def note(self, hosts: Sequence[HostState], now: float) -> str:
        """Return the text after the progress bar.

        Args:
            hosts: The state of each host.
            now: The current time (monotonic seconds).
        """
        up = [host for host in hosts if host.up and host.closed is None]
        if now - self._ranks_at >= _RANKS_SECONDS:
            self._ranks_at, self._slow = now, self._slowest()
        parts = [f"{len(up)} of {len(hosts)} hosts", *self._slow]
        if self.step_at is None:
            words = ["importing and compiling"]
        else:
            words = [f"loss {self.record['loss']:.4f}", *self._pace()]
        complaints = [f"{host.host}: {host.complaint}" for host in hosts if host.complaint]
        return ", ".join([*words, *parts, *(line[:_COMPLAINT_SIGNS] for line in complaints[-1:])])

    def _pace(self) -> list[str]:
        if len(self._seen) < 2:
            return []
        (began, first, before), (ended, last, after) = self._seen[0], self._seen[-1]
        seconds = max(ended - began, 1e-9)
        return [
            f"{seconds / (last - first):.2f} s a step",
            f"{(after - before) / seconds:,.0f} tokens/s",
        ]

    def _slowest(self) -> list[str]:
        """Return ``["rank 37 takes 1.3 x the median"]``, the slowest rank; [] if none is slow."""
        seconds = read_rank_times(self.folder / RANK_TIMES)
        if len(seconds) < 2:
            return []
        rank, most = max(seconds.items(), key=lambda item: item[1])
        median = statistics.median(seconds.values())
        if median <= 0 or most < _SLOW * median:
            return []
        return [f"rank {rank} takes {most / median:.1f} x the median"]


def read_rank_times(folder: Path) -> dict[int, float]:
    """Return rank -> seconds of the rank's last step; files that cannot be read are skipped."""
    found = {}
    for path in folder.glob("rank_*"):
        with suppress(OSError, ValueError, IndexError):
            found[int(path.name[5:])] = float(path.read_text(encoding="utf-8").split()[1])
    return found
