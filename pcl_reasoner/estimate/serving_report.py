"""Formats the cost of sampling and evaluation as rows for a terminal and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.serving_estimate import MOST_AT_ONCE, Cost, Serving, cost
from pcl_reasoner.estimate.serving_size import assumptions
from pcl_reasoner.estimate.training_size import Training

COLUMNS = ("sampling", "responses", "tokens", "servers", "at once", "ms a token", "hours")
HEADINGS = (*COLUMNS, "prefill", "device-hours")


@dataclass(frozen=True)
class Drawn:
    """The estimate of a stage that draws responses.

    Args:
        serving: The responses and the servers.
        cost: The time that it takes; None if a server cannot do it.
        problem: Why a server cannot do it; empty if it can.
        fuller: The cost with as many responses at once as memory and MOST_AT_ONCE allow; None if
            that is not more than in ``cost``.
    """

    serving: Serving
    cost: Cost | None
    problem: str
    fuller: Cost | None


def plan_serving(model: Training, chip: Chip, found: Sequence[Serving]) -> list[Drawn]:
    """Estimate stages that draw responses.

    Args:
        model: The model's shape.
        chip: The device.
        found: The responses and the servers of each stage.
    """
    drawn = []
    for serving in found:
        if model.heads % serving.devices:
            said = f"{model.heads} heads cannot be shared by {serving.devices} devices"
            drawn.append(Drawn(serving, None, said, None))
            continue
        now = cost(model, chip, serving)
        most = replace(serving, under_way=serving.servers * MOST_AT_ONCE)
        fuller = cost(model, chip, most)
        better = fuller if now and fuller and fuller.at_once > now.at_once else None
        said = "" if now else "they cannot hold the weights and one response"
        drawn.append(Drawn(serving, now, said, better))
    return drawn


def rows(drawn: Sequence[Drawn]) -> list[tuple[str, ...]]:
    """One table row per stage."""
    return [_row(one) for one in drawn]


def _row(one: Drawn) -> tuple[str, ...]:
    serving, now = one.serving, one.cost
    first = (
        serving.stage,
        f"{serving.responses:,}",
        f"{serving.tokens:,.0f}",
        f"{serving.servers} x {serving.devices}",
    )
    if now is None:
        return (*first, "cannot be", "", "", "", "")
    return (
        *first,
        f"{now.at_once} of {now.fitting}",
        f"{now.seconds_per_token * 1000:.1f}",
        f"{now.hours:.1f}",
        f"{now.prefill_hours / now.hours:.1%}",
        f"{now.device_hours:,.0f}",
    )


def lines(drawn: Sequence[Drawn]) -> list[str]:
    """Describe the assumptions, the sources, the stages that do not fit, and faster settings."""
    said = []
    for one in drawn:
        stage = one.serving.stage
        said += [f"  {stage}: {note}" for note in one.serving.notes]
        if one.problem:
            said.append(
                f"  {stage}: a server of {one.serving.devices} devices: {one.problem}. Change "
                "server_devices in the launch file, or its sampling.devices"
            )
        if one.cost:
            said.append(
                f"  {stage}: a response of {one.serving.longest:,} tokens, the longest, takes "
                f"{one.cost.longest_hours:.1f} h with a server to itself"
            )
        if one.fuller:
            said.append(
                f"  {stage}: with {one.fuller.at_once} responses at once a server in place of "
                f"{one.cost.at_once if one.cost else 0} (concurrency): {one.fuller.hours:.1f} h"
            )
    return [*assumptions(), *said]


def as_json(drawn: Sequence[Drawn]) -> list[dict[str, Any]]:
    """The complete estimate as JSON values, in seconds and hours."""
    return [
        {
            **asdict(one.serving),
            "notes": list(one.serving.notes),
            "problem": one.problem,
            "cost": _cost(one.cost),
            "with_more_at_once": _cost(one.fuller),
        }
        for one in drawn
    ]


def _cost(one: Cost | None) -> dict[str, Any] | None:
    if one is None:
        return None
    values = {key: value for key, value in asdict(one).items() if key != "serving"}
    return {**values, "hours": one.hours, "device_hours": one.device_hours}
