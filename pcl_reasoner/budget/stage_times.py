"""The hours and the disk of each stage of a recipe, for the calendar of its run.

[StageTime("v15_opg/sample", 18.8, Growth(start=17.1e9, after=6.2e9)), …]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pcl_reasoner.budget import disk_size
from pcl_reasoner.budget.disk_size import DRAWN_BYTES, KEPT_BYTES
from pcl_reasoner.budget.round_size import RoundEstimate
from pcl_reasoner.budget.sandbox_size import Tested, place, program_seconds
from pcl_reasoner.budget.serving_report import SamplingEstimate
from pcl_reasoner.budget.serving_size import Asked
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.days import Growth, StageTime
from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR, Choice
from pcl_reasoner.estimate.saves import Run, Waiting, checkpoint_bytes
from pcl_reasoner.estimate.server_starts import Start, hours_of
from pcl_reasoner.prove.config import ProveConfig
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.train.config import ExportConfig, TrainConfig

Served = Sequence[tuple[Asked, SamplingEstimate]]
"""What stages ask of servers, and its estimate."""


@dataclass(frozen=True)
class Asks:
    """What the stages ask of other machines than the training's.

    Args:
        served: What they ask of servers.
        starts: The starts of these servers.
        tested: The programs that they run.
        file_rate: Bytes per second at which a host reads the shared folder.
    """

    served: Served
    starts: Sequence[Start]
    tested: Sequence[Tested]
    file_rate: float


def stage_times(plan: Plan, own: StageTime, model_bytes: float, asks: Asks) -> Iterator[StageTime]:
    """Yield the stages of a plan's recipe in their order.

    Args:
        plan: The plan.
        own: The stage that trains.
        model_bytes: Bytes of an exported model.
        asks: What the stages ask of servers and sandboxes.
    """
    for planned in plan.stages:
        if planned.recipe is not plan.recipe:
            continue
        if planned.title == own.title:
            yield own
        else:
            hours = _hours(planned, asks)
            yield StageTime(planned.title, hours, _growth(planned, asks.served, model_bytes))


def _hours(planned: PlannedStage, asks: Asks) -> float | None:
    """Hours on servers and, at least, in sandboxes; None if they are not known."""
    title, workers = planned.title, place(planned.recipe.launch.placement)[1]
    costs = [found.cost for asked, found in asks.served if asked.planned.title == title]
    programs = [program_seconds(one, workers)[0] for one in asks.tested if one.stage == title]
    known = [cost.hours for cost in costs if cost is not None]
    starts = hours_of(asks.starts, title, asks.file_rate)
    if isinstance(planned.spec.config, ProveConfig) and starts:
        return starts
    # Other stages that train have another plan.
    if isinstance(planned.spec.config, TrainConfig | RlConfig) or not (known or programs):
        return None
    return sum(known) + (starts or 0.0) + sum(programs) / SECONDS_PER_HOUR


def _growth(planned: PlannedStage, served: Served, model_bytes: float) -> Growth:
    if isinstance(planned.spec.config, ExportConfig):
        return Growth(end=model_bytes, after=model_bytes)
    if isinstance(planned.spec.config, RlConfig):
        return Growth()
    tokens = sum(
        asked.workload.responses * asked.workload.tokens
        for asked, _ in served
        if asked.planned.title == planned.title and asked.needs.kind == "sampling"
    )
    return Growth(start=DRAWN_BYTES * tokens, after=KEPT_BYTES * tokens)


def training_time(
    title: str, config: TrainConfig, run: Run, size: DataSize, now: Choice, waited: Waiting
) -> StageTime:
    """The hours of a stage ``train`` with its saves, and its disk.

    Args:
        title: The recipe and the stage.
        config: The stage's settings.
        run: The training's steps and saves.
        size: Its rows.
        now: The estimate of its steps.
        waited: What it waits for.
    """
    rows = sum(disk_size.row_bytes(size))
    model = disk_size.model_bytes(run.job)
    hours = now.hours + waited.seconds / SECONDS_PER_HOUR
    growth = Growth(
        start=rows,
        step=checkpoint_bytes(run.job),
        count=min(config.keep_checkpoints, waited.saves),
        every=run.checkpoint_steps * run.seconds / SECONDS_PER_HOUR,
        end=model,  # the merged checkpoint; the others are then removed
        after=rows + model,
    )
    return StageTime(title, hours, growth)


def rounds_time(found: RoundEstimate, waited: Waiting) -> StageTime:
    """The hours of all rounds of a stage ``rl`` with their saves, and their disk.

    Args:
        found: A round.
        waited: What the rounds wait for.
    """
    config, hours = found.config, found.hours
    kept = min(config.keep_checkpoints, waited.saves) * checkpoint_bytes(found.now.job)
    states = (config.keep_weights + 1) * found.folder_bytes + 2 * found.slice_bytes
    per_round = sum(disk_size.round_bytes(found))
    model = disk_size.model_bytes(found.now.job)
    growth = Growth(
        start=states + kept,
        step=per_round,
        count=config.max_rounds,
        every=hours or 1.0,
        end=model,
        after=per_round * config.max_rounds + model,
    )
    if hours is None:
        return StageTime(found.stage, None, growth)
    whole = config.max_rounds * hours + waited.seconds / SECONDS_PER_HOUR
    return StageTime(found.stage, whole, growth)
