"""Estimates the starts of servers: every server reads its model's folder from the shared folder.

starts of servers                    folder   servers per host   seconds   hours
servers of v15_opg/sample             66 GB                  2        33    0.01
servers of v15_opg/evaluate_after    131 GB                  2        66    0.02
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR
from pcl_reasoner.estimate.saves import COMPILE_SECONDS

HEADINGS = ("starts of servers", "folder", "servers per host", "seconds", "hours")
_GB = 1e9


@dataclass(frozen=True)
class Start:
    """The start of the servers of one stage.

    Args:
        stage: The recipe and the stage, and the model if it is not the policy.
        title: The recipe and the stage.
        folder_bytes: Bytes of the served folder; each server reads all of it.
        servers: Servers on each host, which read at the same time.
        is_export: Whether the folder is an export of a training: float32.
        pass_bytes: Bytes that a stage ``prove`` also reads for its own pass; 0 for other stages.
    """

    stage: str
    title: str
    folder_bytes: float
    servers: int
    is_export: bool = False
    pass_bytes: float = 0.0

    def seconds(self, file_rate: float) -> float:
        """Seconds of the start, and of a proof's own pass: its compile and its read.

        Args:
            file_rate: Bytes per second at which a host reads the shared folder.
        """
        own = self.pass_bytes / file_rate + COMPILE_SECONDS if self.pass_bytes else 0.0
        return self.folder_bytes * self.servers / file_rate + own


def hours_of(starts: Sequence[Start], title: str, file_rate: float) -> float | None:
    """Hours of the starts of a stage; None if it starts no servers."""
    found = [one.seconds(file_rate) for one in starts if one.title == title]
    return sum(found) / SECONDS_PER_HOUR if found else None


def rows(starts: Sequence[Start], file_rate: float) -> list[tuple[str, ...]]:
    """One table row per start."""
    return [
        (
            f"servers of {one.stage}",
            f"{one.folder_bytes / _GB:,.0f} GB",
            str(one.servers),
            f"{one.seconds(file_rate):,.0f}",
            f"{one.seconds(file_rate) / SECONDS_PER_HOUR:.2f}",
        )
        for one in starts
    ]


def lines(starts: Sequence[Start], hosts: int, file_rate: float) -> list[str]:
    """What is assumed of the starts, and what they leave out."""
    if not starts:
        return []
    rate, all_hosts = file_rate / _GB, hosts * file_rate / _GB
    found = [
        f"  {len(starts)} starts of servers: a folder x servers per host / {rate:.3g} GB/s, which "
        f"is {all_hosts:,.3g} GB/s of the shared folder for {hosts} hosts; an engine's own start "
        "(graphs, warm-up) is not included"
    ]
    if any(one.is_export for one in starts):
        found.append("  an exported folder is float32: twice the bytes of the policy's")
    if any(one.pass_bytes for one in starts):
        found.append(
            f"  a proof's own pass: {COMPILE_SECONDS:.0f} s of compile (ASSUMED) and the "
            "checkpoint's read; the search for a cause is not included"
        )
    return found
