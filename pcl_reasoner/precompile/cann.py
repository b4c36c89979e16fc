"""Runs MindSpore's own dry run of one rank: it needs CANN but no device, and uses the back end.

This code was never run, because there was no machine with CANN. Source: MindSpore's tutorial on
DryRun. At simulation level 1 MindSpore compiles, counts the memory of operators' inputs and
outputs, and logs it if GLOG_v is 1.
"""

import re
import shlex
import sys
from pathlib import Path

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.precompile.compile_plan import Job
from pcl_reasoner.precompile.compile_run import LOG, failure, run_logged

_FIGURES = {
    "peak": r"Actual peak memory usage \(with fragments\): (\d+)M",
    "peak_without_fragments": r"Used peak memory usage \(without fragments\): (\d+)M",
    "usable": r"MindSpore Used memory size: (\d+)M",
}


def variables(job: Job, rank: int) -> dict[str, str]:
    """Return the environment variables that make MindSpore simulate a rank."""
    return {
        "MS_SIMULATION_LEVEL": "1",
        "RANK_SIZE": str(job.layout.world),
        "RANK_ID": str(rank),
        "GLOG_v": "1",
        "GLOG_logtostderr": "1",
    }


def command(job: Job, config: Path, rank: int) -> str:
    """Return the dry run's command as a shell line, including environment variables."""
    assignments = [f"{key}={value}" for key, value in variables(job, rank).items()]
    return shlex.join([*assignments, "python", "-m", "pcl_reasoner.worker", str(config)])


def simulate(job: Job, config: Path, rank: int) -> dict[str, int]:
    """Run the dry run of one rank, and return its memory in bytes as `memory_figures` does.

    Raises:
        StageError: The dry run failed.
    """
    folder = config.parent / f"cann_rank_{rank}"
    arguments = [sys.executable, "-m", "pcl_reasoner.worker", str(config.absolute())]
    code = run_logged(arguments, folder, variables(job, rank))
    if code != 0:
        raise StageError(f"MindSpore's dry run: {failure(job, rank, code, folder / LOG)}")
    return memory_figures((folder / LOG).read_text(encoding="utf-8", errors="replace"))


def read_dry_run(file: Path) -> dict[str, int]:
    """Read the memory in bytes from the log of a dry run that the user started.

    Args:
        file: The dry run's log.

    Raises:
        InputError: The log has no line with the peak.
    """
    found = memory_figures(file.read_text(encoding="utf-8", errors="replace"))
    if "peak" not in found:
        raise InputError(
            f"{file}: no line 'Actual peak memory usage (with fragments): …M'. MindSpore prints it "
            "with MS_SIMULATION_LEVEL=1 and GLOG_v=1; give the log of such a run."
        )
    return found


def memory_figures(log: str) -> dict[str, int]:
    """Return name in _FIGURES -> bytes from a dry run's log; the last line with a figure counts."""
    found = {name: re.findall(pattern, log) for name, pattern in _FIGURES.items()}
    return {name: int(values[-1]) << 20 for name, values in found.items() if values}
