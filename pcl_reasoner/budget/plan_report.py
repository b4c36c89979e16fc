"""Estimates a stage that trains and all that its recipe asks, and formats it for a terminal."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.budget import disk_size
from pcl_reasoner.budget.disk_size import Line
from pcl_reasoner.budget.response_counts import Responses, training_data
from pcl_reasoner.budget.round_size import RoundEstimate, estimate_round
from pcl_reasoner.budget.sandbox_size import Tested, tested
from pcl_reasoner.budget.served_model import served_model, trained_model
from pcl_reasoner.budget.serving_report import SamplingEstimate, estimate_sampling
from pcl_reasoner.budget.serving_size import Asked, asked_of_servers
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.layouts import (
    SECONDS_PER_HOUR,
    Choice,
    changes,
    choice,
    compare,
    layout_title,
    memory_limit,
    nearest_fit,
)
from pcl_reasoner.estimate.memory_estimate import memory
from pcl_reasoner.estimate.time_estimate import mfu, share_for
from pcl_reasoner.estimate.training_size import GIB, Training, read_training
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.finished import PlannedInput
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.sizes import Sizes, derived_sizes, size_lines

MOST_STAGES = 8
"""Largest number of pipeline stages that a table shows side by side."""
WORTH_MOST = 3


@dataclass(frozen=True)
class Planned:
    """The result of a plan.

    Args:
        stage: The stage that trains, ``recipe/stage``.
        placement: The launch file's hosts that train, servers and sandboxes.
        chip: The device.
        size: Rows and steps; of a stage ``rl``, of one round.
        sizes: Sizes that MindFormers gets; they follow from rows and settings. None for rounds.
        derived: ``sizes`` as lines of text.
        round: A round of a stage ``rl``; None for a stage ``train``.
        now: The estimate of the launch file's own layout.
        nearest: The smallest change that makes the training fit; None if needless or impossible.
        better: Changes that save hours, the largest saving first.
        layouts: All layouts of the same number of devices.
        measured_hours: Hours of a real run, given by the user; or None.
        sampling: What the recipe's stages ask of servers.
        sandboxes: The programs that the recipe's stages run.
        disk: What takes disk space, and how much.
        dry_run: Memory figures of MindSpore's own dry run, in bytes; empty without one.
    """

    stage: str
    placement: Placement
    chip: Chip
    size: DataSize
    sizes: Sizes | None
    derived: list[str]
    round: RoundEstimate | None
    now: Choice
    nearest: Choice | None
    better: list[Choice]
    layouts: list[Choice]
    measured_hours: float | None
    sampling: list[SamplingEstimate]
    sandboxes: list[Tested]
    disk: list[Line]
    dry_run: Mapping[str, int]


def plan_training(
    planned: PlannedStage,
    plan: Plan,
    config: Mapping[str, Any],
    chip: Chip,
    options: Mapping[str, Any],
) -> Planned:
    """Estimate a stage that trains, and what the other stages ask of servers and sandboxes.

    Args:
        planned: The stage, ``train`` or ``rl``.
        plan: All stages of its recipe.
        config: The stage's rendered MindFormers configuration.
        chip: The device.
        options: The user's ``segments``, ``segment_tokens``, ``problems``, ``measured_hours``,
            ``response_tokens`` and ``dry_run``, each a value or None.

    Raises:
        InputError: The number of segments is neither given nor published, or their mean length
            is greater than a row's length.
    """
    job, stage = read_training(config), planned.spec.config
    responses = Responses(plan.recipe, options["problems"], options["response_tokens"])
    round_ = None
    if isinstance(stage, RlConfig):
        round_ = estimate_round(plan, planned, chip, responses)
    size = round_.size if round_ else _data(planned, responses, options)
    asked, policy = asked_of_servers(plan, responses), planned.inputs["policy"]
    sizes = None if round_ else derived_sizes(_training(planned), size.rows)
    own = disk_size.rounds(round_) if round_ else _disk(planned, job, size)
    return Planned(
        stage=planned.title,
        placement=stage.trains_on(planned.recipe.launch.placement),
        chip=chip,
        size=size,
        sizes=sizes,
        derived=size_lines(sizes, _training(planned)) if sizes else [],
        round=round_,
        now=choice(layout_title(job), job, chip, size),
        nearest=nearest_fit(job, chip, size),
        better=changes(job, chip, size)[:WORTH_MOST],
        layouts=compare(job, chip, size),
        measured_hours=options["measured_hours"],
        sampling=[_estimated(one, job, policy, chip) for one in asked],
        sandboxes=tested(plan, responses),
        disk=[*_common_disk(plan, policy, job, asked), *own],
        dry_run=options["dry_run"] or {},
    )


def _data(planned: PlannedStage, responses: Responses, options: Mapping[str, Any]) -> DataSize:
    return training_data(planned, responses, options["segments"], options["segment_tokens"])


def _training(planned: PlannedStage) -> TrainConfig:
    settings = planned.spec.config
    assert isinstance(settings, TrainConfig)
    return settings


def _common_disk(
    plan: Plan, policy: PlannedInput, job: Training, asked: list[Asked]
) -> Iterator[Line]:
    yield from disk_size.fetched_models(plan, policy.path, trained_model(job))
    yield from disk_size.drawn_responses(asked)


def _disk(planned: PlannedStage, job: Training, size: DataSize) -> Iterator[Line]:
    return disk_size.training(planned.title, _training(planned), job, size)


def _estimated(asked: Asked, job: Training, policy: PlannedInput, chip: Chip) -> SamplingEstimate:
    model = served_model(asked.planned, asked.needs.role, job, policy)
    return estimate_sampling(model, chip, asked.workload)


def gib(size: float) -> str:
    """Format bytes as GiB with one decimal place."""
    return f"{size / GIB:.1f}"


def headlines(found: Planned) -> list[str]:
    """Describe the training and the devices that are planned."""
    job, chip = found.now.job, found.chip
    number = len(found.placement.hosts)
    per_host, hosts = job.devices // number, "1 host" if number == 1 else f"{number} hosts"
    return [
        f"{found.stage}: {layout_title(job)} = {job.devices} devices",
        f"a device is {chip.title} ({chip.name}): {hosts} x {per_host} of the "
        f"{chip.devices_per_node} devices of a node",
        f"{job.layers} layers, hidden {job.hidden:,}, vocabulary {job.vocabulary:,}, rows of "
        f"{job.row_tokens:,} tokens, {job.micro_batches} micro-batches per step",
        "an estimate without any device: parameters and moments are exact, the rest is computed "
        "from formulas",
    ]


def memory_rows(job: Training) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(headings, rows): GiB by content and stage; with over 8 stages, the first 7 and the last."""
    stages = memory(job)
    shown = list(range(job.stages))
    if job.stages > MOST_STAGES:
        shown = [*shown[: MOST_STAGES - 1], job.stages - 1]
    rows = [
        (kind, *(gib(stages[stage][kind]) for stage in shown))
        for kind in stages[0]
        if any(stages[stage][kind] for stage in shown)
    ]
    rows.append(("total", *(gib(sum(stages[stage].values())) for stage in shown)))
    return ("GiB per device", *(f"stage {stage + 1}" for stage in shown)), rows


def memory_verdict(found: Planned) -> str:
    """Describe the stage that takes most memory, and whether it fits."""
    now, limit = found.now, memory_limit(found.now.job, found.chip)
    stages = now.job.stages
    fullest = (
        f"fullest: stage {now.stage + 1} of {stages}, {gib(now.bytes)} of {gib(limit)} GiB "
        "(max_device_memory, at most the chip's memory)"
    )
    if now.fits:
        return f"{fullest}: fits"
    change = "no layout of these devices fits"
    if near := found.nearest:
        change = f"the nearest that fits: {near.title} ({gib(near.bytes)} GiB)"
    return f"{fullest}: DOES NOT FIT, {gib(now.bytes - limit)} GiB over; {change}"


def notes(found: Planned) -> list[str]:
    """Warn of settings without effect; compare the estimate with MindSpore's own dry run."""
    job = found.now.job
    lines = []
    if found.dry_run:
        peak = found.dry_run["peak"]
        totals = (sum(kinds.values()) for kinds in memory(job))
        near = min(totals, key=lambda total: abs(total - peak))
        lines.append(
            f"MindSpore's dry run: a peak of {gib(peak)} GiB with fragments; the nearest of the "
            f"stages above has {gib(near)} GiB ({peak / near - 1:+.0%})"
        )
    if job.swap_attention and job.recomputed == job.stage_layers:
        lines.append(
            "swap has no effect: MindFormers swaps only layers that it does not recompute, and it "
            "recomputes every layer here"
        )
    return lines


def data_lines(size: DataSize, derived: list[str]) -> list[str]:
    """Describe segments, rows and steps, their sources, and the sizes that follow from them."""
    fewer = size.rows_before - size.rows
    share = f"{fewer / size.rows_before:.1%}"
    saved = f", {fewer:,} ({share}) fewer than {size.rows_before:,}" if fewer > 0 else ""
    return [
        f"{size.segments:,} segments of {size.segment_tokens:,.0f} tokens = {size.tokens:,} tokens "
        f"per {'epoch' if derived else 'round'}; {size.rows:,} rows{saved}, "
        f"{size.as_rows().filled:.1%} full",
        *derived,
        *(f"  {note}" for note in size.notes),
    ]


def time_headings(found: Planned) -> tuple[str, str, str]:
    """Headings of the columns of ``time_rows``, without the first."""
    if found.round is not None:
        return "seconds per micro-step", "hours per round", "share"
    return "seconds per step", "hours", "share"


def time_rows(one: Choice) -> list[tuple[str, str, str, str]]:
    """(part, seconds per step, hours, share), one row per part and the total."""
    hours = one.steps / SECONDS_PER_HOUR
    return [
        (name, f"{seconds:.2f}", _hours(one, hours * seconds), f"{seconds / one.seconds:.1%}")
        for name, seconds in {**one.step, "total": one.seconds}.items()
    ]


def _hours(one: Choice, hours: float) -> str:
    """Format hours; a round takes minutes."""
    return f"{hours:.3f}" if one.job.by_rounds else f"{hours:.1f}"


def time_lines(found: Planned) -> list[str]:
    """Describe the MFU, the assumed shares of the chip's speed, and a measured run's share."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.chip.assumed.items())
    lines = [
        f"MFU {found.now.mfu:.1%}; assumed shares of the chip's figures: {shares}",
        f"figures: {found.chip.source}",
    ]
    if found.measured_hours is None:
        return lines
    job, rows = found.now.job, found.size.as_rows()
    seconds = found.measured_hours * SECONDS_PER_HOUR / found.now.steps
    share = share_for(job, found.chip, rows, seconds)
    explained = (
        f"matrix products at {share:.1%} of their peak (assumed above: "
        f"{found.chip.assumed['matrix']:.0%}) reproduce it"
        if share is not None
        else "the estimate is longer even with matrix products at 100 % of their peak"
    )
    lines.append(
        f"{found.measured_hours:g} h measured: {seconds:.0f} s per step, MFU "
        f"{mfu(job, found.chip, rows, seconds):.1%}; {explained}"
    )
    return lines


def change_rows(found: Planned) -> list[tuple[str, str, str, str]]:
    """(change, hours, hours saved, GiB) of the changes that save most."""
    now = found.now.hours
    return [
        (one.title, _hours(one, one.hours), _hours(one, now - one.hours), gib(one.bytes))
        for one in found.better
    ]


def layout_rows(found: Planned) -> list[tuple[str, ...]]:
    """(layout, recomputed layers, GiB, fits, hours, MFU), the launch file's own first."""
    limit = memory_limit(found.now.job, found.chip)
    return [
        (
            f"{one.title}{' (as it is)' if index == 0 else ''}",
            _span(one.job.recomputed, one.job.stage_layers),
            gib(one.bytes),
            "yes" if one.fits else f"{gib(one.bytes - limit)} over",
            _hours(one, one.hours),
            f"{one.mfu:.1%}",
        )
        for index, one in enumerate([found.now, *found.layouts])
    ]


def _span(recomputed: tuple[int, ...], layers: tuple[int, ...]) -> str:
    """Recomputed layers per stage as text: ``0 to 12 of 16``."""
    low, high = min(recomputed), max(recomputed)
    return f"{low if low == high else f'{low} to {high}'} of {max(layers)}"
