"""Estimates a stage that trains, and all that its recipe asks: servers, sandboxes, disk, days."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.budget import disk_size
from pcl_reasoner.budget.disk_size import Line, fetched_bytes
from pcl_reasoner.budget.response_counts import PROMPT_TOKENS, Responses, training_data
from pcl_reasoner.budget.round_size import RoundEstimate, estimate_round
from pcl_reasoner.budget.sandbox_size import Tested, tested
from pcl_reasoner.budget.served_model import served_model
from pcl_reasoner.budget.serving_report import SamplingEstimate, estimate_sampling
from pcl_reasoner.budget.serving_size import Asked, asked_of_servers
from pcl_reasoner.budget.stage_times import Asks, rounds_time, stage_times, training_time
from pcl_reasoner.budget.started import server_starts
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.days import Placed, in_order
from pcl_reasoner.estimate.layouts import (
    SECONDS_PER_HOUR,
    Choice,
    changes,
    choice,
    compare,
    layout_title,
    nearest_fit,
)
from pcl_reasoner.estimate.measured import Calibration, calibrate, read_run
from pcl_reasoner.estimate.saves import Run, Waiting, Waits, waiting
from pcl_reasoner.estimate.served_shape import SERVED_BYTES, trained_model
from pcl_reasoner.estimate.server_starts import Start
from pcl_reasoner.estimate.training_size import Training, read_training
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.finished import PlannedInput
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.sizes import Sizes, derived_sizes, size_lines

WORTH_MOST = 3
"""Number of changes that are shown."""


@dataclass(frozen=True)
class Course:
    """How a run goes in time.

    Args:
        run: The run's steps and saves; of a stage ``rl``, its rounds.
        waits: Rates and times of what the run waits for.
        waited: What the run waits for beside its steps.
        calendar: The recipe's stages one after another.
        starts: The starts of servers.
    """

    run: Run
    waits: Waits
    waited: Waiting
    calendar: list[Placed]
    starts: list[Start]


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
        is_length_known: Whether the mean length of a segment was given or measured.
        calibration: What a real run has measured; None without one.
        course: What the run waits for, and the recipe's stages one after another.
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
    is_length_known: bool
    calibration: Calibration | None
    course: Course
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
            ``response_tokens``, ``dry_run`` and ``measured`` (metrics.jsonl), each a value or None.

    Raises:
        InputError: The number of segments is neither given nor published, or their mean length
            is greater than a row's length.
    """
    found = _calibration(planned, read_training(config), chip, options)
    if found is not None:
        chip = found.chip
        options = {**options, "segment_tokens": options["segment_tokens"] or found.segment_tokens}
    return _planned(planned, plan, config, chip, options, found)


def _planned(
    planned: PlannedStage,
    plan: Plan,
    config: Mapping[str, Any],
    chip: Chip,
    options: Mapping[str, Any],
    found: Calibration | None,
) -> Planned:
    job, stage = read_training(config), planned.spec.config
    responses = Responses(plan.recipe, options["problems"], options["response_tokens"])
    own = _trained(planned, plan, config, chip, responses, options)
    size = own.size
    sizes = None if own.round else derived_sizes(_training(planned), size.rows)
    asked, policy = asked_of_servers(plan, responses), planned.inputs["policy"]
    served = [(one, _estimated(one, job, policy, chip)) for one in asked]
    programs, waits = tested(plan, responses), found.waits if found else Waits()
    asks = Asks(served, list(server_starts(plan, job, policy)), programs, waits.file_rate)
    return Planned(
        stage=planned.title,
        placement=stage.trains_on(planned.recipe.launch.placement),
        chip=chip,
        size=size,
        sizes=sizes,
        derived=size_lines(sizes, _training(planned)) if sizes else [],
        round=own.round,
        now=own.now,
        nearest=nearest_fit(job, chip, size),
        better=changes(job, chip, size)[:WORTH_MOST],
        layouts=compare(job, chip, size),
        measured_hours=options["measured_hours"],
        sampling=[estimate for _, estimate in served],
        sandboxes=programs,
        disk=list(_disk(plan, own, asked)),
        is_length_known=bool(options["response_tokens" if own.round else "segment_tokens"]),
        calibration=found,
        course=_course(plan, own, waits, asks),
        dry_run=options["dry_run"] or {},
    )


def _calibration(
    planned: PlannedStage, job: Training, chip: Chip, options: Mapping[str, Any]
) -> Calibration | None:
    if options["measured"] is None:
        return None
    per_host = planned.recipe.launch.placement.devices_per_host
    return calibrate(read_run(options["measured"]), job, chip, per_host, PROMPT_TOKENS)


@dataclass(frozen=True)
class _Trained:
    """The stage that trains, with its estimate; fields as in Planned."""

    planned: PlannedStage
    config: Mapping[str, Any]
    chip: Chip
    size: DataSize
    now: Choice
    round: RoundEstimate | None


def _trained(
    planned: PlannedStage,
    plan: Plan,
    config: Mapping[str, Any],
    chip: Chip,
    responses: Responses,
    options: Mapping[str, Any],
) -> _Trained:
    job, round_ = read_training(config), None
    if isinstance(planned.spec.config, RlConfig):
        round_ = estimate_round(plan, planned, chip, responses)
    size = round_.size if round_ else _data(planned, responses, options)
    now = choice(layout_title(job), job, chip, size)
    return _Trained(planned, config, chip, size, now, round_)


def _course(plan: Plan, own: _Trained, waits: Waits, asks: Asks) -> Course:
    run, title = _run(own), own.planned.title
    waited = waiting(run, own.chip, waits)
    if own.round is not None:
        time = rounds_time(own.round, waited)
    else:
        settings = _training(own.planned)
        time = training_time(title, settings, run, own.size, own.now, waited)
    times = list(stage_times(plan, time, disk_size.model_bytes(run.job), asks))
    policy = own.planned.inputs["policy"].path
    fetched = fetched_bytes(plan, policy, trained_model(run.job))
    return Course(run, waits, waited, in_order(fetched, times), list(asks.starts))


def _run(own: _Trained) -> Run:
    """The steps and saves of a training; of a stage ``rl``, its rounds."""
    stage, job, found = own.planned.spec.config, own.now.job, own.round
    monitors = [one for one in own.config["callbacks"] if one["type"] == "CheckpointMonitor"]
    if found is not None:
        steps, every = found.config.max_rounds, found.config.checkpoint_rounds
        seconds = (found.hours or sum(found.phases.values())) * SECONDS_PER_HOUR
    else:
        steps, every = own.now.steps, _training(own.planned).checkpoint_steps
        seconds = own.now.seconds
    return Run(
        job=job,
        hosts=len(stage.trains_on(own.planned.recipe.launch.placement).hosts),
        steps=steps,
        checkpoint_steps=every,
        seconds=seconds,
        folder_bytes=trained_model(job).stored * SERVED_BYTES,
        is_async=any(one.get("async_save") for one in monitors),
    )


def _data(planned: PlannedStage, responses: Responses, options: Mapping[str, Any]) -> DataSize:
    return training_data(planned, responses, options["segments"], options["segment_tokens"])


def _training(planned: PlannedStage) -> TrainConfig:
    settings = planned.spec.config
    assert isinstance(settings, TrainConfig)
    return settings


def _disk(plan: Plan, own: _Trained, asked: list[Asked]) -> Iterator[Line]:
    job, planned = own.now.job, own.planned
    yield from disk_size.fetched_models(plan, planned.inputs["policy"].path, trained_model(job))
    yield from disk_size.drawn_responses(asked)
    if own.round is not None:
        yield from disk_size.rounds(own.round)
    else:
        yield from disk_size.training(planned.title, _training(planned), job, own.size)


def _estimated(asked: Asked, job: Training, policy: PlannedInput, chip: Chip) -> SamplingEstimate:
    model = served_model(asked.planned, asked.needs.role, job, policy)
    return estimate_sampling(model, chip, asked.workload)
