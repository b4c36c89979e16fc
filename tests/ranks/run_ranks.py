"""Starts a program as all ranks, waits for them, and says why one failed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rank_extension

from pcl_reasoner.train.worker import die_with_parent

RANKS = Path(__file__).parent / "ranks.py"


def run_ranks(
    world: int,
    program: Path,
    words: list[str],
    environment: dict[str, str] | None = None,
    limit_s: float = 300,
) -> list[str]:
    """Run a Python program as every rank of a world.

    Args:
        world: Ranks, a process each.
        program: The file.
        words: Its arguments.
        environment: Beside this process's own.
        limit_s: Seconds after which all are killed.

    Returns:
        What each rank wrote, in order.

    Raises:
        RuntimeError: A rank failed, or time was up; with the end of what that rank wrote.
    """
    library = rank_extension.build()
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOG_v": "3", **(environment or {})}
    # A socket's path may have 107 characters, which a test's folder does not leave.
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        logs = [Path(folder) / f"{rank}.log" for rank in range(world)]
        processes = [
            subprocess.Popen(
                [sys.executable, RANKS, str(rank), str(world), folder, library, program, *words],
                stdin=subprocess.DEVNULL,
                stdout=log.open("w"),
                stderr=subprocess.STDOUT,
                env=variables,
                preexec_fn=die_with_parent,
            )
            for rank, log in enumerate(logs)
        ]
        try:
            failed = _wait(processes, limit_s)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        said = [log.read_text(errors="replace") for log in logs]
    if failed is not None:
        rank, why = failed
        raise RuntimeError(f"{program.name}, rank {rank} of {world}: {why}:\n{said[rank][-4000:]}")
    return said


def _wait(processes: list[subprocess.Popen[bytes]], limit_s: float) -> tuple[int, str] | None:
    """The first rank that fails, and how; None when all end well."""
    until = time.monotonic() + limit_s
    while True:
        codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code:
                return rank, f"exit code {code}"
        if None not in codes:
            return None
        if time.monotonic() > until:
            return codes.index(None), f"not done in {limit_s:.0f} s"
        time.sleep(0.05)
