"""Formats the cost of sampling and evaluation as rows for a terminal and as JSON values."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.serving_estimate import MOST_AT_ONCE, Cost, Workload, cost
from pcl_reasoner.estimate.serving_size import ASSUMPTIONS
from pcl_reasoner.estimate.training_size import Training

COLUMNS = ("sampling", "responses", "tokens", "servers", "at once", "ms per token", "hours")
HEADINGS = (*COLUMNS, "prefill", "device-hours")


@dataclass(frozen=True)
class SamplingEstimate:
    """The estimate of a stage that draws responses.

    Args:
        workload: The responses and the servers.
        cost: The time that it takes; None if a server cannot do it.
        problem: Why a server cannot do it; empty if it can.
        fuller: The cost with as many responses at once as memory and MOST_AT_ONCE allow; None if
            that is not more than in ``cost``.
    """

    workload: Workload
    cost: Cost | None = None
    problem: str = ""
    fuller: Cost | None = None


def plan_serving(
    model: Training, chip: Chip, workloads: Sequence[Workload]
) -> list[SamplingEstimate]:
    """Estimate stages that draw responses.

    Args:
        model: The model's shape.
        chip: The device.
        workloads: The responses and the servers of each stage.
    """
    return [_estimate(model, chip, workload) for workload in workloads]


def _estimate(model: Training, chip: Chip, workload: Workload) -> SamplingEstimate:
    if model.heads % workload.devices:
        problem = f"{model.heads} heads cannot be shared by {workload.devices} devices"
        return SamplingEstimate(workload, problem=problem)
    now = cost(model, chip, workload)
    fuller = cost(model, chip, replace(workload, under_way=workload.servers * MOST_AT_ONCE))
    if now is None or fuller is None:
        return SamplingEstimate(workload, problem="they cannot hold the weights and one response")
    return SamplingEstimate(workload, now, "", fuller if fuller.at_once > now.at_once else None)


def rows(estimates: Sequence[SamplingEstimate]) -> list[tuple[str, ...]]:
    """One table row per stage."""
    return [_row(one.workload, one.cost) for one in estimates]


def _row(workload: Workload, now: Cost | None) -> tuple[str, ...]:
    first = (
        workload.stage,
        f"{workload.responses:,}",
        f"{workload.tokens:,.0f}",
        f"{workload.servers} x {workload.devices}",
    )
    if now is None:
        return (*first, "impossible", "", "", "", "")
    return (
        *first,
        f"{now.at_once} of {now.fitting}",
        f"{now.seconds_per_token * 1000:.1f}",
        f"{now.hours:.1f}",
        f"{now.prefill_hours / now.hours:.1%}",
        f"{now.device_hours:,.0f}",
    )


def lines(estimates: Sequence[SamplingEstimate]) -> list[str]:
    """Describe the assumptions, the sources, the stages that do not fit, and faster settings."""
    return [
        ASSUMPTIONS,
        *(f"  {one.workload.stage}: {line}" for one in estimates for line in _lines(one)),
    ]


def _lines(one: SamplingEstimate) -> Iterator[str]:
    workload = one.workload
    yield from workload.notes
    if one.problem:
        yield (
            f"a server of {workload.devices} devices is impossible: {one.problem}. Change "
            "server_devices or sampling.devices in the launch file"
        )
    if one.cost:
        yield (
            f"the longest response, of {workload.longest:,} tokens, takes "
            f"{one.cost.longest_hours:.1f} h alone on a server"
        )
    if one.cost and one.fuller:
        yield (
            f"with {one.fuller.at_once} responses at once per server in place of "
            f"{one.cost.at_once} (concurrency): {one.fuller.hours:.1f} h"
        )


def as_json(estimates: Sequence[SamplingEstimate]) -> list[dict[str, Any]]:
    """The complete estimate as JSON values, in seconds and hours."""
    return [
        {
            **asdict(one.workload),
            "notes": list(one.workload.notes),
            "problem": one.problem,
            "cost": _cost(one.cost),
            "with_more_at_once": _cost(one.fuller),
        }
        for one in estimates
    ]


def _cost(one: Cost | None) -> dict[str, Any] | None:
    if one is None:
        return None
    values = {key: value for key, value in asdict(one).items() if key != "workload"}
    return {**values, "hours": one.hours, "device_hours": one.device_hours}
