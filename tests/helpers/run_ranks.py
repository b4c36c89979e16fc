"""Starts a program as all ranks, waits for them, and says why one failed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from pcl_reasoner.cpu_ranks.extension import build
from pcl_reasoner.supervise.processes import die_with_parent

RANK = Path(__file__).parent / "one_rank.py"
CACHE = Path(__file__).parents[2] / "build"
Process = subprocess.Popen[bytes]


def run_ranks(
    world: int,
    program: Path,
    words: list[str],
    environment: dict[str, str] | None = None,
    limit_s: float = 900,
) -> list[str]:
    """Run a Python program as every rank of a world.

    Args:
        world: Ranks, a process each.
        program: The file; an absolute path.
        words: Its arguments; its working folder is one that is deleted afterwards.
        environment: Beside this process's own.
        limit_s: Seconds after which all are killed.

    Returns:
        What each rank wrote, in order.

    Raises:
        RuntimeError: A rank failed, or time was up; with the end of what that rank wrote.
    """
    library = build(CACHE)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOG_v": "3", **(environment or {})}
    # A socket's path may have 107 characters, which a test's folder does not leave.
    with tempfile.TemporaryDirectory(prefix="ranks-") as name, ExitStack() as stack:
        logs = [Path(name) / f"{rank}.log" for rank in range(world)]
        processes = []
        for rank, log in enumerate(logs):
            command = [sys.executable, RANK, str(rank), str(world), name, library, program, *words]
            output = stack.enter_context(log.open("w"))
            # Where a compile fails MindSpore leaves files in the folder that it runs in.
            processes.append(_start(command, output, variables, Path(name)))
            stack.callback(_end, processes[-1])
        failed = _wait(processes, limit_s)
        said = [log.read_text(errors="replace") for log in logs]
    if failed is not None:
        rank, why = failed
        raise RuntimeError(f"{program.name}, rank {rank} of {world}: {why}:\n{said[rank][-4000:]}")
    return said


def _start(command: list[Any], output: IO[str], variables: dict[str, str], cwd: Path) -> Process:
    return subprocess.Popen(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=variables,
        preexec_fn=die_with_parent,
    )


def _end(process: Process) -> None:
    process.kill()
    process.wait()


def _wait(processes: list[Process], limit_s: float) -> tuple[int, str] | None:
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
