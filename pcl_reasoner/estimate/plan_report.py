"""Formats a plan as lines and rows for a terminal, as one JSON value, and as a chart.

{"stage": "v15_opg/train", "memory": {"fits": true, "fullest_stage": 1, …}, "hours": 29.2, …}
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.estimate import disk_size
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.disk_size import Line
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
from pcl_reasoner.estimate.memory_estimate import STATES, memory
from pcl_reasoner.estimate.response_counts import Responses, training_data
from pcl_reasoner.estimate.sandbox_size import Tested, tested
from pcl_reasoner.estimate.served_model import served_model, trained_model
from pcl_reasoner.estimate.serving_report import SamplingEstimate, estimate_sampling
from pcl_reasoner.estimate.serving_size import Asked, asked_of_servers
from pcl_reasoner.estimate.time_estimate import mfu, share_for
from pcl_reasoner.estimate.training_size import GIB, Training, read_training
from pcl_reasoner.report.charts import Bar, alone, bar_chart
from pcl_reasoner.runner.plan import Plan, PlannedInput, PlannedStage
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.sizes import Sizes, derived_sizes, size_lines

MOST_STAGES = 8
"""Largest number of pipeline stages that a table shows side by side."""
WORTH_MOST = 3
CHART_PARTS = (
    ("compute", "compute"),
    ("tensor communication", "tensor"),
    ("pipeline bubble", "bubble"),
    ("everything else", "rest"),
)
"""(label, CSS class of the colour) of each part of the chart's hours."""
_CHART_STYLE = (
    "text{font:12px sans-serif;fill:#333} .grid{stroke:#ddd} .over{opacity:.3} "
    ".compute{fill:#3b6ea5} .tensor{fill:#7fb3d5} .bubble{fill:#e0a458} .rest{fill:#8a8a8a}"
)


@dataclass(frozen=True)
class Planned:
    """The result of a plan.

    Args:
        stage: The train stage, ``recipe/stage``.
        placement: The launch file's hosts, servers and sandboxes.
        chip: The device.
        size: Rows and steps.
        sizes: Sizes that MindFormers gets; they follow from rows and settings.
        derived: ``sizes`` as lines of text.
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
    sizes: Sizes
    derived: list[str]
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
    """Estimate a train stage, and what the other stages ask of servers and sandboxes.

    Args:
        planned: The train stage.
        plan: All stages of its recipe.
        config: The stage's rendered MindFormers configuration.
        chip: The device.
        options: The user's ``segments``, ``segment_tokens``, ``problems``, ``measured_hours``,
            ``response_tokens`` and ``dry_run``, each a value or None.

    Raises:
        InputError: The number of segments is neither given nor published, or their mean length
            is greater than a row's length.
    """
    job = read_training(config)
    responses = Responses(plan.recipe, options["problems"], options["response_tokens"])
    size = training_data(planned, responses, options["segments"], options["segment_tokens"])
    settings = planned.spec.config
    assert isinstance(settings, TrainConfig)
    sizes = derived_sizes(settings, size.rows)
    asked, policy = asked_of_servers(plan, responses), planned.inputs["policy"]
    disk = [
        *disk_size.fetched_models(plan, policy.path, trained_model(job)),
        *disk_size.drawn_responses(asked),
        *disk_size.training(planned.title, settings, job, size),
    ]
    return Planned(
        stage=planned.title,
        placement=planned.recipe.launch.placement,
        chip=chip,
        size=size,
        sizes=sizes,
        derived=size_lines(sizes, settings),
        now=choice(layout_title(job), job, chip, size),
        nearest=nearest_fit(job, chip, size),
        better=changes(job, chip, size)[:WORTH_MOST],
        layouts=compare(job, chip, size),
        measured_hours=options["measured_hours"],
        sampling=[_estimated(one, job, policy, chip) for one in asked],
        sandboxes=tested(plan, responses),
        disk=disk,
        dry_run=options["dry_run"] or {},
    )


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
        f"per epoch; {size.rows:,} rows{saved}, {size.as_rows().filled:.1%} full",
        *derived,
        *(f"  {note}" for note in size.notes),
    ]


def time_rows(one: Choice) -> list[tuple[str, str, str, str]]:
    """(part, seconds per step, hours, share), one row per part and the total."""
    hours = one.steps / SECONDS_PER_HOUR
    return [
        (name, f"{seconds:.2f}", f"{hours * seconds:.1f}", f"{seconds / one.seconds:.1%}")
        for name, seconds in {**one.step, "total": one.seconds}.items()
    ]


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
        (one.title, f"{one.hours:.1f}", f"{now - one.hours:.1f}", gib(one.bytes))
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
            f"{one.hours:.1f}",
            f"{one.mfu:.1%}",
        )
        for index, one in enumerate([found.now, *found.layouts])
    ]


def _span(recomputed: tuple[int, ...], layers: tuple[int, ...]) -> str:
    """Recomputed layers per stage as text: ``0 to 12 of 16``."""
    low, high = min(recomputed), max(recomputed)
    return f"{low if low == high else f'{low} to {high}'} of {max(layers)}"


def as_json(found: Planned) -> dict[str, Any]:
    """The complete plan as one JSON value, in bytes, seconds and hours."""
    job = found.now.job
    return {
        "what": "plan: an estimate without any device",
        "stage": found.stage,
        "chip": asdict(found.chip),
        "training": {**asdict(job), "selected": sorted(job.selected)},
        "memory": _memory(found),
        "data": {**asdict(found.size), "tokens": found.size.tokens},
        "sizes": asdict(found.sizes),
        "now": _choice(found.now),
        "nearest": _choice(found.nearest) if found.nearest else None,
        "changes": [_choice(one) for one in found.better],
        "layouts": [_choice(one) for one in found.layouts],
        "measured_hours": found.measured_hours,
        "sampling": [{**one.pop("workload"), **one} for one in map(asdict, found.sampling)],
        "sandboxes": [asdict(one) for one in found.sandboxes],
        "disk": dict(found.disk),
        "dry_run_bytes": dict(found.dry_run),
    }


def _memory(found: Planned) -> dict[str, Any]:
    stages = memory(found.now.job)
    return {
        "limit_bytes": memory_limit(found.now.job, found.chip),
        "fullest_stage": found.now.stage + 1,
        "fits": found.now.fits,
        "stages": stages,
        "of_activations": [kind for kind in stages[0] if kind not in STATES],
    }


def _choice(one: Choice) -> dict[str, Any]:
    return {
        "title": one.title,
        "layout": {"data": one.job.data, "tensor": one.job.tensor, "stages": one.job.stages},
        "recomputed_layers": list(one.job.recomputed),
        "fullest_stage": one.stage + 1,
        "bytes": one.bytes,
        "fits": one.fits,
        "steps": one.steps,
        "seconds_per_step": one.step,
        "hours": one.hours,
        "mfu": one.mfu,
    }


def layout_chart(choices: Sequence[Choice]) -> str:
    """Draw the hours of each layout as SVG; a layout that does not fit into memory is pale.

    Args:
        choices: The layouts, one bar each, from the top.
    """
    named = [name for name, _ in CHART_PARTS[:-1]]
    bars = []
    for one in choices:
        seconds = [one.step[name] for name in named]
        seconds.append(one.seconds - sum(seconds))
        hours = [one.steps * part / SECONDS_PER_HOUR for part in seconds]
        note = f"{one.hours:.0f} h, {one.bytes / GIB:.0f} GiB"
        bars.append(Bar(one.title, hours, note, "" if one.fits else "over"))
    return alone(bar_chart("Hours by parallel layout", CHART_PARTS, bars, "h"), _CHART_STYLE)


def write(found: Planned, folder: Path) -> list[Path]:
    """Write plan.json and layouts.svg, each atomically, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "plan.json", folder / "layouts.svg"]
    write_atomically(files[0], json.dumps(as_json(found), indent=1) + "\n")
    own = replace(found.now, title="as it is")
    write_atomically(files[1], layout_chart([own, *found.layouts]))
    return files
