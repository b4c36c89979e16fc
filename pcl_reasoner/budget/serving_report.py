"""Estimates what stages ask of servers, and formats it as rows and lines for a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pcl_reasoner.budget.serving_size import ASSUMPTIONS
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.served_shape import ServedModel
from pcl_reasoner.estimate.serving_estimate import (
    MEMORY_SHARE,
    MOST_AT_ONCE,
    Cost,
    Workload,
    cost,
    fitting_responses,
)
from pcl_reasoner.estimate.training_size import GIB

COLUMNS = ("asked of servers", "model", "responses", "tokens", "read", "servers", "at once")
HEADINGS = (*COLUMNS, "ms per token", "hours", "prefill", "device-hours")
TEXTS = 2
"""Columns of text, which come before those of numbers."""
UNKNOWN = "its shape is not known here: fetch its config.json, or name its weights in the recipe"


@dataclass(frozen=True)
class SamplingEstimate:
    """The estimate of a stage that asks servers for responses, scores or log-probs.

    Args:
        workload: The responses and the servers.
        model: What the servers serve.
        problem: Why a server cannot run the model; empty if it can.
        cost: The time that the responses take; None if a server cannot run the model, or if the
            number of responses is not known.
        with_more_at_once: The cost with as many responses at once as memory and MOST_AT_ONCE allow;
            None if ``cost`` already has as many.
        on_all_devices: The cost with as many servers as the hosts have devices for; None if
            ``cost`` already has as many.
        shape: The model's shape; None without a cost.
    """

    workload: Workload
    model: str = ""
    problem: str = ""
    cost: Cost | None = None
    with_more_at_once: Cost | None = None
    on_all_devices: Cost | None = None
    shape: ServedModel | None = None


def estimate_sampling(
    model: ServedModel | None, chip: Chip, workload: Workload
) -> SamplingEstimate:
    """Estimate what a stage asks of servers; None for a model whose shape is not known."""
    if model is None:
        return SamplingEstimate(workload, "unknown", UNKNOWN)
    workload = per_copy(model, workload)
    if problem := _problem(model, chip, workload):
        return SamplingEstimate(workload, model.title, problem)
    if not workload.responses:
        return SamplingEstimate(workload, model.title)
    now = cost(model, chip, workload)
    fuller = cost(model, chip, replace(workload, under_way=workload.servers * MOST_AT_ONCE))
    more = fuller.at_once > now.at_once and workload.tokens > 0
    whole = None
    if workload.possible > workload.servers:
        whole = cost(model, chip, replace(workload, servers=workload.possible))
    return SamplingEstimate(workload, model.title, "", now, fuller if more else None, whole, model)


def per_copy(model: ServedModel, workload: Workload) -> Workload:
    """Count each copy of a model without experts as a server: it has its own devices."""
    if model.has_experts:
        return workload
    copies = workload.copies
    servers, possible = workload.servers * copies, workload.possible * copies
    return replace(workload, servers=servers, possible=possible, copies=1)


def _problem(model: ServedModel, chip: Chip, workload: Workload) -> str:
    if model.heads % workload.devices:
        return f"{model.heads} heads cannot be shared by {workload.devices} devices"
    return too_large(model, chip, workload)


def too_large(model: ServedModel, chip: Chip, workload: Workload) -> str:
    """Say why a server's memory is too small; empty if it is not.

    Args:
        model: The model's shape.
        chip: The device.
        workload: The server, of `per_copy`.
    """
    if fitting_responses(model, chip, workload):
        return ""
    memory = workload.server_devices * chip.memory_bytes / GIB
    weights = model.weight_bytes * model.stored / GIB
    return (
        f"they cannot hold the weights and one response: they have {memory:,.0f} GiB and "
        f"vLLM takes {MEMORY_SHARE:.0%} of it, and the weights take {weights:,.0f} GiB"
    )


def rows(estimates: Sequence[SamplingEstimate]) -> list[tuple[str, ...]]:
    """One table row per stage."""
    return [_row(one) for one in estimates]


def _row(one: SamplingEstimate) -> tuple[str, ...]:
    workload, now = one.workload, one.cost
    first = (
        workload.stage,
        one.model,
        f"{workload.responses:,}" if workload.responses else "unknown",
        f"{workload.tokens:,.0f}",
        f"{workload.prompt_tokens:,.0f}",
        f"{workload.servers} x {workload.server_devices}",
    )
    if now is None:
        return (*first, "impossible" if one.problem not in ("", UNKNOWN) else "", "", "", "", "")
    return (
        *first,
        f"{now.at_once} of {now.fitting}" if workload.tokens else "",
        f"{now.seconds_per_token * 1000:.1f}" if workload.tokens else "",
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
    if one.problem == UNKNOWN:
        yield f"the model is unknown: {one.problem}"
    elif one.problem:
        yield (
            f"a server of {workload.server_devices} devices is impossible: {one.problem}. Change "
            "server_devices or sampling.devices in the launch file"
        )
    if one.cost and workload.tokens:
        yield (
            f"the longest response, of {workload.longest:,} tokens, takes "
            f"{one.cost.longest_hours:.1f} h alone on a server"
        )
    if one.cost and (more := one.with_more_at_once):
        yield (
            f"with {more.at_once} responses at once per server in place of "
            f"{one.cost.at_once} (concurrency): {more.hours:.1f} h"
        )
    if one.cost and (whole := one.on_all_devices):
        more_servers = workload.possible - workload.servers
        yield (
            f"{more_servers * workload.server_devices} of the hosts' devices are idle: "
            f"{workload.possible} servers of {workload.server_devices} devices (the launch file's "
            f"key servers, per host) take {whole.hours:.1f} h in place of {one.cost.hours:.1f} h"
        )
