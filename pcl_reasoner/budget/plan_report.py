"""Formats the estimate of a training for a terminal."""

from pcl_reasoner.budget.plan_training import Planned
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.layouts import (
    SECONDS_PER_HOUR,
    Choice,
    layout_title,
    memory_limit,
)
from pcl_reasoner.estimate.memory_estimate import memory
from pcl_reasoner.estimate.time_estimate import mfu, share_for
from pcl_reasoner.estimate.training_size import GIB, Training

MOST_STAGES = 8
"""Largest number of pipeline stages that a table shows side by side."""
ASSUMED_SHARES = "assumed shares of the chip's figures"
NO_CONTEXT_PARALLEL = (
    "no layout has context parallelism: the losses have no strategies for it, and with the "
    "compressed mask MindFormers 1.8.0 only splits heads, by TP x CP (docs/cluster/plan.md)"
)


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
        f"{chip.devices_per_node} devices of a node{_idle(chip, per_host)}",
        f"{job.layers} layers, hidden {job.hidden:,}, vocabulary {job.vocabulary:,}, rows of "
        f"{job.row_tokens:,} tokens, {job.micro_batches} micro-batches per step",
        "an estimate without any device: parameters and moments are exact, the rest is computed "
        "from formulas",
    ]


def _idle(chip: Chip, per_host: int) -> str:
    idle = chip.devices_per_node - per_host
    return f"; {idle} of each node are IDLE in training" if idle > 0 else ""


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
    by_run = found.chip.measured
    shares = ", ".join(
        f"{name} {share:.0%}{' MEASURED' if name in by_run else ''}"
        for name, share in found.chip.assumed.items()
    )
    kind = "shares of the chip's figures, assumed if not measured" if by_run else ASSUMED_SHARES
    lines = [
        f"MFU {found.now.mfu:.1%}; {kind}: {shares}",
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
