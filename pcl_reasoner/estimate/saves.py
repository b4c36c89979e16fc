"""Estimates what training waits for beside its steps: saves, the first start, and a resume.

    first start   compile 240 s, read the weights 16 s
    a save        copy to the host 0.2 s, write 8.2 s, seal 4.1 s
    a resume      check the checkpoint 105 s, compile 240 s, read slices 8 s, repeat 50 steps

Training waits for a save: the project renders ``async_save: false``, and PclSeals hashes a file in
the step that wrote it. docs/cluster/plan.md says what MindFormers' asynchronous save would change.
"""

from __future__ import annotations

from dataclasses import dataclass

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.memory_estimate import parameters_held
from pcl_reasoner.estimate.training_size import Training

CHECKPOINT_BYTES = 12
"""Bytes per parameter in a checkpoint: the parameter and two moments in float32."""
FILE_RATE = 4e9
"""Assumed bytes per second at which a host reads or writes the folder that all hosts share."""
HASHING_RATE = 2e9
"""Bytes per second at which one process hashes (SHA-256); measured on one core of 2024."""
SEAL_RATE = 1e9
"""Bytes per second at which a rank reads and hashes what it has written (docs/reliability.md)."""
COMPILE_SECONDS = 240.0
"""Seconds of one core for MindSpore's front end at full size, as docs/benchmarks.md has it. The
back end's time, which needs CANN, is not known here and is not included."""


@dataclass(frozen=True)
class Waits:
    """What the waiting depends on.

    Args:
        file_rate: Bytes per second at which a host reads or writes the shared folder.
        start_seconds: Measured seconds from the start of the process to the first step's rows, and
            the first step's own delay; None: estimated.
        measured: Names of the values above that were measured.
    """

    file_rate: float = FILE_RATE
    start_seconds: float | None = None
    measured: frozenset[str] = frozenset()


def stored_numbers(job: Training) -> int:
    """Number of parameters that all ranks store; without sharding, every copy counts."""
    ranks = job.data * job.tensor
    return sum(parameters_held(job, stage) * ranks for stage in range(job.stages))


def checkpoint_bytes(job: Training) -> int:
    """Bytes of one checkpoint, over all ranks."""
    return CHECKPOINT_BYTES * stored_numbers(job)


def largest_slices(job: Training) -> int:
    """Bytes that the rank with most parameters writes per checkpoint."""
    return CHECKPOINT_BYTES * max(parameters_held(job, stage) for stage in range(job.stages))


@dataclass(frozen=True)
class Waiting:
    """What a run waits for, in seconds.

    Args:
        saves: Checkpoints that the run writes.
        save: Part -> seconds that training waits for one save.
        hidden: Seconds of a save that training does not wait for.
        start: Part -> seconds from the start of the processes to the first step.
        resume: Part -> seconds that one interruption costs.
    """

    saves: int
    save: dict[str, float]
    hidden: float
    start: dict[str, float]
    resume: dict[str, float]

    @property
    def seconds(self) -> float:
        """Seconds of one start and all saves."""
        return sum(self.start.values()) + self.saves * sum(self.save.values())


@dataclass(frozen=True)
class Run:
    """A run whose waiting is estimated.

    Args:
        job: The training.
        hosts: Hosts that train; a host writes all slices of its devices.
        steps: Steps in all; of a stage ``rl``, rounds.
        checkpoint_steps: Steps between two saves.
        seconds: Seconds per step.
        folder_bytes: Bytes of the weights' folder; each host reads all of it.
        is_async: Whether MindFormers writes checkpoints beside the following steps.
    """

    job: Training
    hosts: int
    steps: int
    checkpoint_steps: int
    seconds: float
    folder_bytes: float
    is_async: bool = False

    @property
    def host_slices(self) -> float:
        """Bytes that a host of the fullest stage writes or reads per checkpoint."""
        return largest_slices(self.job) * self.job.devices / self.hosts


def waiting(run: Run, chip: Chip, waits: Waits) -> Waiting:
    """Estimate what a run waits for beside its steps."""
    write = run.host_slices / waits.file_rate
    return Waiting(
        saves=max(1, -(-run.steps // run.checkpoint_steps)),  # also one after the last step
        save=save_seconds(run, chip, waits),
        hidden=write if run.is_async else 0.0,
        start=_start_seconds(run, waits),
        resume=_resume_seconds(run, waits),
    )


def save_seconds(run: Run, chip: Chip, waits: Waits) -> dict[str, float]:
    """Part -> seconds of one save. All ranks save at once; the fullest stage's are the slowest."""
    slices = largest_slices(run.job)
    parts = {
        "copy to the host": slices / chip.swap,
        "write": run.host_slices / waits.file_rate,
        "seal": slices / SEAL_RATE,
    }
    if run.is_async:
        del parts["write"]
    return parts


def _start_seconds(run: Run, waits: Waits) -> dict[str, float]:
    if waits.start_seconds is not None:
        return {"as measured": waits.start_seconds}
    read = run.folder_bytes / waits.file_rate
    return {"compile": COMPILE_SECONDS, "read the weights": read}


def _resume_seconds(run: Run, waits: Waits) -> dict[str, float]:
    repeated = run.checkpoint_steps / 2
    return {
        # One machine reads and hashes the slices of all ranks, with all its cores.
        "check the checkpoint": checkpoint_bytes(run.job) / waits.file_rate,
        "compile": COMPILE_SECONDS,
        "read slices": run.host_slices / waits.file_rate,
        f"repeat {repeated:g} steps, on average": repeated * run.seconds,
    }
