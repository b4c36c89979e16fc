"""Compares parallel layouts of the same devices, and finds the changes that save most hours."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.data_size import DataSize, exact_fill
from pcl_reasoner.estimate.memory_estimate import fullest, stage_memory
from pcl_reasoner.estimate.time_estimate import mfu, step_time
from pcl_reasoner.estimate.training_size import Training
from pcl_reasoner.train.layout import batch_problems, layout_problems

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Choice:
    """One configuration of a training, and its estimate.

    Args:
        title: The configuration's description.
        job: Shape, layout and settings of the training.
        steps: Optimizer steps.
        stage: The pipeline stage that takes most memory, from 0.
        bytes: Memory per device of that stage.
        fits: Whether that memory is within the limit.
        step: Seconds per step, by part.
        seconds: Seconds per step, all parts together.
        hours: Hours of all steps.
        mfu: Model FLOPs utilisation.
    """

    title: str
    job: Training
    steps: int
    stage: int
    bytes: int
    fits: bool
    step: dict[str, float]
    seconds: float
    hours: float
    mfu: float


def memory_limit(job: Training, chip: Chip) -> int:
    """Bytes that a device may use: MindSpore's limit, or the chip's memory if that is less."""
    return min(job.limit_bytes, chip.memory_bytes)


def choice(title: str, job: Training, chip: Chip, size: DataSize) -> Choice:
    """Estimate one configuration of a training."""
    rows = size.as_rows()
    stage, memory_bytes = fullest(job)
    step = step_time(job, chip, rows)
    seconds = sum(step.values())
    return Choice(
        title=title,
        job=job,
        steps=size.steps,
        stage=stage,
        bytes=memory_bytes,
        fits=memory_bytes <= memory_limit(job, chip),
        step=step,
        seconds=seconds,
        hours=size.steps * seconds / SECONDS_PER_HOUR,
        mfu=mfu(job, chip, rows, seconds),
    )


def layout_title(job: Training) -> str:
    """The layout as text: ``DP 4 x TP 8 x PP 4``."""
    return f"DP {job.data} x TP {job.tensor} x PP {job.stages}"


def possible_layouts(job: Training) -> Iterator[tuple[int, int, int]]:
    """Yield each (data, tensor, stages) that uses all devices and splits the model evenly.

    A rank needs at least as many micro-batches per step as there are stages. All stages have the
    same number of layers.
    """
    model = {
        "num_heads": job.heads,
        "n_kv_heads": job.key_heads,
        "intermediate_size": job.feed_forward,
        "vocab_size": job.vocabulary,
        "num_layers": job.layers,
        "batch_size": job.micro_rows,
        "seq_length": job.row_tokens,
    }
    for tensor in _divisors(job.devices):
        for stages in _divisors(job.devices // tensor):
            data = job.devices // tensor // stages
            if job.by_rounds and stages == 1 and job.global_rows != data * job.micro_rows:
                continue  # a micro-step of a round has several micro-batches in a pipeline only
            if not [
                *batch_problems(
                    job.global_rows, job.micro_rows, data, stages, "Ascend", job.devices
                ),
                *layout_problems(model, tensor, stages, job.sequence_parallel),
            ]:
                yield data, tensor, stages


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def least_recompute(job: Training, chip: Chip) -> Training:
    """Return the training with as few recomputed layers in each stage as memory allows.

    All layers are recomputed if memory does not suffice. Swapping of activations is turned off,
    because with swapping MindFormers reads a ``recompute`` list as layer numbers.

    Args:
        job: The training; its own recomputed layers are ignored.
        chip: The device.
    """
    job = replace(job, swap_attention=False)
    limit = memory_limit(job, chip)

    def fits(stage: int, count: int) -> bool:
        trial = replace(job, recomputed=(count,) * job.stages)
        return sum(stage_memory(trial, stage).values()) <= limit

    chosen = (
        next((count for count in range(layers) if fits(stage, count)), layers)
        for stage, layers in enumerate(job.stage_layers)
    )
    return replace(job, recomputed=tuple(chosen))


def recompute_settings(job: Training, other: Training) -> str:
    """Launch-file settings, as text, with which ``job`` recomputes the same layers as ``other``."""
    off = ", swap false" if job.swap_attention and not other.swap_attention else ""
    return f"recompute {list(other.recomputed)}{off}"


def compare(job: Training, chip: Chip, size: DataSize) -> list[Choice]:
    """Estimate all possible layouts, each with as few recomputed layers as memory allows.

    Layouts that fit come first, by hours. The others follow, by memory.
    """
    trials = [least_recompute(job.with_layout(*layout), chip) for layout in possible_layouts(job)]
    choices = [choice(layout_title(trial), trial, chip, size) for trial in trials]
    return sorted(choices, key=lambda one: (not one.fits, one.hours if one.fits else one.bytes))


def nearest_fit(job: Training, chip: Chip, size: DataSize) -> Choice | None:
    """Find the smallest change that makes a training fit into memory.

    Changes are tried in this order: other recomputed layers; in addition, the optimizer's moments
    in host memory; another layout. Returns None if the training already fits or no change helps.
    """
    if fullest(job)[1] <= memory_limit(job, chip):
        return None
    # First keep the optimizer as it is; swapping its moments is slower.
    for swap in dict.fromkeys((job.swap_optimizer, True)):
        trial = least_recompute(replace(job, swap_optimizer=swap), chip)
        title = recompute_settings(job, trial)
        if swap != job.swap_optimizer:
            title += ", swap_optimizer"
        found = choice(title, trial, chip, size)
        if found.fits:
            return found
    return next((one for one in compare(job, chip, size) if one.fits), None)


def changes(job: Training, chip: Chip, size: DataSize) -> list[Choice]:
    """Estimate single changes; return those that fit into memory and save hours, best first."""
    now = choice("now", job, chip, size)
    better = [one for one in _trials(job, chip, size) if one.fits and one.hours < now.hours]
    return sorted(better, key=lambda one: one.hours)


def _trials(job: Training, chip: Chip, size: DataSize) -> Iterator[Choice]:
    fewer = least_recompute(job, chip)
    yield choice(recompute_settings(job, fewer), fewer, chip, size)
    if job.swap_optimizer:
        yield choice("swap_optimizer off", replace(job, swap_optimizer=False), chip, size)
    if not job.sequence_parallel and job.tensor > 1:
        yield choice("sequence_parallel on", replace(job, sequence_parallel=True), chip, size)
    rows = exact_fill(size.tokens, size.row_tokens)
    if rows < size.rows:
        packed = replace(size, rows=rows, steps=max(1, round(size.steps * rows / size.rows)))
        title = "pack.one_segment_per_row false: several responses per row, fewer steps"
        yield choice(title, job, chip, packed)
    now = layout_title(job)
    other = next((one for one in compare(job, chip, size) if one.title != now), None)
    if other:
        title = f"{other.title}, {recompute_settings(job, other.job)}"
        yield replace(other, title=title)
