"""Formats the cost of sampling and evaluation as rows and lines for a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
        problem: Why a server cannot run the model; empty if it can.
        cost: The time that the responses take; None if a server cannot run the model.
        with_more_at_once: The cost with as many responses at once as memory and MOST_AT_ONCE allow;
            None if ``cost`` already has as many.
    """

    workload: Workload
    problem: str = ""
    cost: Cost | None = None
    with_more_at_once: Cost | None = None


def estimate_sampling(model: Training, chip: Chip, workload: Workload) -> SamplingEstimate:
    """Estimate a stage that draws responses; ``model`` gives only the model's shape."""
    if model.heads % workload.devices:
        problem = f"{model.heads} heads cannot be shared by {workload.devices} devices"
        return SamplingEstimate(workload, problem)
    now = cost(model, chip, workload)
    fuller = cost(model, chip, replace(workload, under_way=workload.servers * MOST_AT_ONCE))
    if now is None or fuller is None:
        return SamplingEstimate(workload, "they cannot hold the weights and one response")
    return SamplingEstimate(workload, "", now, fuller if fuller.at_once > now.at_once else None)


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
    if one.cost and (more := one.with_more_at_once):
        yield (
            f"with {more.at_once} responses at once per server in place of "
            f"{one.cost.at_once} (concurrency): {more.hours:.1f} h"
        )
