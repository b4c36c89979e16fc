"""Writes a plan as one JSON value and as a chart: plan.json and layouts.svg.

{"stage": "v15_opg/train", "memory": {"fits": true, "fullest_stage": 1, …}, "hours": 29.2, …}
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pcl_reasoner.budget import round_report
from pcl_reasoner.budget.plan_training import Planned
from pcl_reasoner.budget.uncertain import HEADINGS, rows
from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.estimate.days import by_day
from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR, Choice, memory_limit
from pcl_reasoner.estimate.memory_estimate import STATES, memory
from pcl_reasoner.estimate.training_size import GIB
from pcl_reasoner.page_parts.charts import Bar, alone, bar_chart

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


def as_json(found: Planned) -> dict[str, Any]:
    """The complete plan as one JSON value, in bytes, seconds and hours."""
    job = found.now.job
    return {
        "what": "plan: an estimate without any device",
        "stage": found.stage,
        "chip": {**asdict(found.chip), "measured": sorted(found.chip.measured)},
        "training": {**asdict(job), "selected": sorted(job.selected)},
        "memory": _memory(found),
        "data": {**asdict(found.size), "tokens": found.size.tokens},
        "sizes": asdict(found.sizes) if found.sizes else None,
        "round": round_report.as_json(found.round) if found.round else None,
        "now": _choice(found.now),
        "nearest": _choice(found.nearest) if found.nearest else None,
        "changes": [_choice(one) for one in found.better],
        "layouts": [_choice(one) for one in found.layouts],
        "measured_hours": found.measured_hours,
        "measured": _measured(found),
        "uncertainties": [dict(zip(HEADINGS, one, strict=True)) for one in rows(found)],
        "sampling": [{**one.pop("workload"), **one} for one in map(asdict, found.sampling)],
        "sandboxes": [asdict(one) for one in found.sandboxes],
        "disk": dict(found.disk),
        "waiting_seconds": asdict(found.course.waited),
        "server_starts": [
            {**asdict(one), "seconds": one.seconds(found.course.waits.file_rate)}
            for one in found.course.starts
        ],
        "stages": [
            {"stage": one.stage.title, "start_hours": one.start, "hours": one.stage.hours}
            | {"bytes_at_most": one.before + one.stage.growth.most}
            | {"bytes_after": one.before + one.stage.growth.after}
            for one in found.course.calendar
        ],
        "days": [asdict(one) for one in by_day(found.course.calendar)],
        "dry_run_bytes": dict(found.dry_run),
    }


def _measured(found: Planned) -> dict[str, Any] | None:
    one = found.calibration
    if one is None:
        return None
    run = {**asdict(one.run), "file": str(one.run.file)}
    del run["job"]
    shares = {name: one.chip.assumed[name] for name in sorted(one.chip.measured)}
    return {"run": run, "shares": shares, "segment_tokens": one.segment_tokens}


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
