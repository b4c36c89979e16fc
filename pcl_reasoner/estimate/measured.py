"""Calibrates the assumptions of a plan from the files of a real training.

    metrics.jsonl      {"step": 2, "tokens": 1040384, "correct_count": 127, "incorrect_count": 0, …}
    seconds.jsonl      {"step": 2, "seconds": 98.71, "after": 0.30}
    mindformers.yaml   the run's shape and layout, steps between saves
    -> matrix products at 31.2 % of their peak, 8,190 trained tokens per response, a save of 35 s

The three files are in the folder of a stage ``train``, also while it runs. seconds.jsonl is needed.
One number per step cannot tell computation from communication: the share of matrix products takes
all that the other assumptions leave over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from pcl_reasoner.core.artifact import SECONDS
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.saves import FILE_RATE, SEAL_RATE, Waits, largest_slices
from pcl_reasoner.estimate.time_estimate import Rows, mfu, share_for
from pcl_reasoner.estimate.training_size import Training, read_training
from pcl_reasoner.train.stopping import read_steps

FEWEST_STEPS = 3
"""Steps that are needed, without the first one of each start."""


@dataclass(frozen=True)
class MeasuredRun:
    """What the files of a run say.

    Args:
        file: metrics.jsonl.
        steps: Number of steps that were timed, without the first one of each start.
        seconds: Median seconds per step, from one step to the next, without saves.
        trained_tokens: Mean trained tokens per response; None if no responses were counted.
        segments: Mean responses per step.
        save: Seconds of a save; None if none was timed.
        start: Seconds of a start, with the first step's delay; None if none was timed.
        job: The run's own training; None without mindformers.yaml.
        device: MindSpore's device target; empty without mindformers.yaml.
    """

    file: Path
    steps: int
    seconds: float
    trained_tokens: float | None
    segments: float
    save: float | None
    start: float | None
    job: Training | None
    device: str


def read_run(metrics: Path) -> MeasuredRun:
    """Read the files of a run.

    Args:
        metrics: Its metrics.jsonl; seconds.jsonl and mindformers.yaml are in the same folder.

    Raises:
        InputError: There is no such file, there are too few timed steps, or mindformers.yaml is
            not of a stage ``train``.
    """
    if not metrics.is_file():
        raise InputError(f"{metrics}: no such file. Give the metrics.jsonl of a stage train.")
    times, records = read_steps(metrics.with_name(SECONDS)), read_steps(metrics)
    job, every, device = _configuration(metrics.with_name("mindformers.yaml"))
    first = [one for one in times if one.get("before")]
    others = [one for one in times if "after" in one and not one.get("before")]
    saves = [one for one in others if every and one["step"] % every == 0]
    plain = [one for one in others if one not in saves]
    if len(plain) < FEWEST_STEPS:
        raise InputError(
            f"{metrics.with_name(SECONDS)}: {len(plain)} timed steps between two others, expected "
            f"at least {FEWEST_STEPS}. Training writes it beside metrics.jsonl: train more steps, "
            "or give --measured-hours of a run without this file."
        )
    between, step = median(one["after"] for one in plain), median(one["seconds"] for one in plain)
    segments = sum(_segments(one) for one in records)
    tokens = sum(one.get("tokens") or 0 for one in records)
    return MeasuredRun(
        file=metrics,
        steps=len(plain),
        seconds=median(one["seconds"] + one["after"] for one in plain),
        trained_tokens=tokens / segments if segments and tokens else None,
        segments=segments / max(1, len(records)),
        save=_positive(median(one["after"] for one in saves) - between) if saves else None,
        start=median(one["before"] + one["seconds"] - step for one in first) if first else None,
        job=job,
        device=device,
    )


def _segments(record: dict[str, Any]) -> float:
    return (record.get("correct_count") or 0) + (record.get("incorrect_count") or 0)


def _positive(seconds: float) -> float | None:
    return seconds if seconds > 0 else None


def _configuration(file: Path) -> tuple[Training | None, int, str]:
    """(training, steps between saves, device) of a run; (None, 0, "") without the file."""
    if not file.is_file():
        return None, 0, ""
    value = read_yaml(file)
    try:
        # A run on a CPU has no such limit; nothing that is calibrated depends on it.
        value["context"].setdefault("max_device_memory", "58GB")
        monitors = [one for one in value["callbacks"] if one["type"] == "CheckpointMonitor"]
        every = int(monitors[0]["save_checkpoint_steps"]) if monitors else 0
        return read_training(value), every, str(value["context"]["device_target"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file}: not the configuration of a stage train of this version ({error}). Remove it "
            "beside metrics.jsonl to take the plan's own layout."
        ) from error


@dataclass(frozen=True)
class Calibration:
    """A plan's assumptions after a measurement.

    Args:
        run: The measured run.
        chip: The chip with measured shares.
        waits: Rates and times with the measured ones.
        segment_tokens: Mean tokens per segment; None if not measured.
        rows: (assumption, assumed, measured, how) of each value, for the report.
        notes: What the run could not say, as lines.
    """

    run: MeasuredRun
    chip: Chip
    waits: Waits
    segment_tokens: float | None
    rows: tuple[tuple[str, str, str, str], ...]
    notes: tuple[str, ...]


ROW_HEADINGS = ("assumption", "assumed", "MEASURED", "how")


def calibrate(
    run: MeasuredRun, job: Training, chip: Chip, per_host: int, prompt_tokens: float
) -> Calibration:
    """Replace assumptions by what a run has measured.

    Args:
        run: The run.
        job: The training that is planned; taken for the run's own if that has no mindformers.yaml.
        chip: The device, with assumed shares.
        per_host: Devices per host of the launch file.
        prompt_tokens: Tokens that a segment has beside those that are trained.
    """
    own = run.job or job
    tokens = run.trained_tokens + prompt_tokens if run.trained_tokens else None
    rows = _rows_of(run, own, tokens)
    faster = _shares(run, own, chip, rows)
    waits = _waits(run, own, job, chip, per_host)
    told = [*_share_rows(run, own, chip, faster, rows), *_wait_rows(run, waits)]
    if tokens:
        how = f"mean of trained tokens, and {prompt_tokens:g} of a prompt ASSUMED"
        told.append(("tokens per segment", "as below", f"{tokens:,.0f}", how))
    notes = list(_notes(run, chip, faster, waits))
    return Calibration(run, faster, waits, tokens, tuple(told), tuple(notes))


def _rows_of(run: MeasuredRun, job: Training, tokens: float | None) -> Rows:
    """Length and fill of the run's rows; without counts, rows of one segment."""
    if tokens is None:
        return Rows(job.row_tokens, 1.0)
    filled = run.segments * tokens / (job.global_rows * job.row_tokens)
    return Rows(min(tokens, job.row_tokens), min(1.0, filled))


def _shares(run: MeasuredRun, job: Training, chip: Chip, rows: Rows) -> Chip:
    """The chip whose matrix products, with attention in proportion, reproduce the run's steps."""
    share = share_for(job, chip, rows, run.seconds)
    if share is None:
        return chip
    attention = share * chip.attention / chip.matrix
    return replace(
        chip,
        matrix=share * chip.peak,
        attention=attention * chip.peak,
        assumed={**chip.assumed, "matrix": share, "attention": attention},
        measured=frozenset({"matrix", "attention"}),
    )


def _waits(run: MeasuredRun, own: Training, job: Training, chip: Chip, per_host: int) -> Waits:
    slices = largest_slices(own)
    write = (run.save or 0.0) - slices / chip.swap - slices / SEAL_RATE
    rate = slices * min(per_host, own.devices) / write if write > 0 else FILE_RATE
    # Another model or layout compiles and loads for another time.
    start = run.start if own == job else None
    known = {"file_rate": write > 0, "start_seconds": start is not None}
    return Waits(rate, start, frozenset(name for name, is_known in known.items() if is_known))


def _share_rows(
    run: MeasuredRun, job: Training, chip: Chip, faster: Chip, rows: Rows
) -> Sequence[tuple[str, str, str, str]]:
    how = f"median of {run.steps:,} steps"
    found = [
        ("seconds per step of the run", "", f"{run.seconds:,.2f}", how),
        ("MFU of the run", "", f"{mfu(job, chip, rows, run.seconds):.1%}", how),
    ]
    for name in sorted(faster.measured, reverse=True):
        how = "reproduces the steps" if name == "matrix" else "in proportion to matrix"
        old, new = f"{chip.assumed[name]:.0%}", f"{faster.assumed[name]:.1%}"
        found.append((f"{name}: share of its peak", old, new, how))
    return found


def _wait_rows(run: MeasuredRun, waits: Waits) -> Sequence[tuple[str, str, str, str]]:
    found = []
    if "file_rate" in waits.measured:
        old, new = f"{FILE_RATE / 1e9:g} GB/s", f"{waits.file_rate / 1e9:.2f} GB/s"
        how = f"a save of {run.save:,.1f} s"
        found.append(("files, per host", old, new, how))
    if waits.start_seconds is not None:
        how = "process start to the first step, and its delay"
        found.append(("first start", "as below", f"{waits.start_seconds:,.0f} s", how))
    return found


def _notes(run: MeasuredRun, chip: Chip, faster: Chip, waits: Waits) -> Sequence[str]:
    notes = []
    if run.device == "CPU":
        notes.append(f"the run was on a CPU: its shares say nothing about {chip.title}")
    if faster is chip:
        notes.append(
            "the run is faster than the estimate with matrix products at their full peak: links or "
            "memory are faster than assumed, or communication overlaps; its shares are not taken"
        )
    if run.job is None:
        notes.append("no mindformers.yaml beside metrics.jsonl: the plan's own layout is taken")
    if run.start is not None and waits.start_seconds is None:
        notes.append(f"a start of {run.start:,.0f} s is of another layout, and is not taken")
    return notes
