"""Estimates one round of the stage ``rl``: its rows, the seconds of its phases, and its files.

    256 problems x 16   ->   4 096 responses   ->   640 rows   ->   80 micro-steps of 8 rows
    {"sampling": 0.10, "tests": 0.00, "probe": 0.01, "training": 0.15, "hand-over": 0.09} hours

Sampling and training alternate, so a round takes the sum of its phases. Tests run while other
responses are still drawn. docs/cluster/plan.md has each formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from pcl_reasoner.budget.response_counts import PROMPT_TOKENS, Counted, Responses
from pcl_reasoner.budget.sandbox_size import Tested, place, program_seconds, tested
from pcl_reasoner.budget.serving_report import SamplingEstimate, estimate_sampling
from pcl_reasoner.budget.serving_size import asked_of_servers
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.data_size import DataSize, exact_fill, published_counts
from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR, Choice, choice, layout_title
from pcl_reasoner.estimate.memory_estimate import FLOAT32, slice_numbers
from pcl_reasoner.estimate.saves import FILE_RATE, HASHING_RATE, stored_numbers
from pcl_reasoner.estimate.served_shape import trained_model
from pcl_reasoner.estimate.time_estimate import update_seconds
from pcl_reasoner.estimate.training_size import Training, read_training
from pcl_reasoner.rl.render import planned_yaml
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.plan import Plan, PlannedStage

ROUNDING_RATE = 0.6e9
"""Bytes per second at which one process rounds float32 to bfloat16; measured on a core of 2024."""
SAMPLING, TESTS, PROBE = "sampling", "tests", "probe"
TRAINING, HAND_OVER = "training", "hand-over"


@dataclass(frozen=True)
class RoundEstimate:
    """One round of a stage ``rl``.

    Args:
        stage: The recipe and the stage.
        config: The stage's settings.
        tokens: Mean tokens of a response.
        size: The round's responses as segments, its rows, and its micro-steps as steps.
        problems: Problems that the rounds take their queries from; None if it is not known.
        sampling: What the round asks of the policy's servers; None: they are not asked.
        now: The training, in the launch file's layout; a step is a micro-step.
        update_seconds: Seconds of the update, once per round.
        tests: The programs of the round; None if it runs none.
        workers: Programs that run at a time.
        slice_bytes: Bytes that all ranks write after an update.
        folder_bytes: Bytes of the weights that samplers get.
        hosts: Number of hosts that train.
    """

    stage: str
    config: RlConfig
    tokens: Counted
    size: DataSize
    problems: Counted | None
    sampling: SamplingEstimate | None
    now: Choice
    update_seconds: float
    tests: Tested | None
    workers: int
    slice_bytes: float
    folder_bytes: float
    hosts: int

    @property
    def phases(self) -> dict[str, float]:
        """Phase -> hours of a round; an unknown phase is missing."""
        found = self._sampling_hours()
        found[TRAINING] = self.now.hours + self.update_seconds / SECONDS_PER_HOUR
        found[HAND_OVER] = sum(self.hand_over().values()) / SECONDS_PER_HOUR
        return found

    @property
    def hours(self) -> float | None:
        """Hours of a round; None if no servers draw, or they cannot hold the policy."""
        phases = self.phases
        if SAMPLING not in phases:
            return None
        drawing = max(phases[SAMPLING], phases.get(TESTS, 0.0))
        return drawing + phases.get(PROBE, 0.0) + phases[TRAINING] + phases[HAND_OVER]

    def _sampling_hours(self) -> dict[str, float]:
        config = self.config
        cost = self.sampling.cost if self.sampling else None
        found = {}
        if cost is not None:
            found[SAMPLING] = max(cost.hours, cost.longest_hours)
            if config.plateau is not None:
                asked = config.probe.problems * config.probe.n / config.probe.every
                found[PROBE] = cost.hours * asked / config.responses
        if self.tests is not None:
            fewest, _ = program_seconds(self.tests, self.workers)
            found[TESTS] = fewest / SECONDS_PER_HOUR
        return found

    def hand_over(self) -> dict[str, float]:
        """Step -> seconds, between a round's update and the next round's first request."""
        slices, folder = self.slice_bytes, self.folder_bytes
        is_rounded = self.config.weights_dtype == "bfloat16"
        return {
            "ranks write slices": slices / self.hosts / FILE_RATE,
            # The folder is read again after it is written, and hashed both times.
            "merged": (slices + 2 * folder) / FILE_RATE + 2 * folder / HASHING_RATE,
            "rounded": slices / ROUNDING_RATE if is_rounded else 0.0,
            "servers read": folder / FILE_RATE,
        }


def estimate_round(
    plan: Plan, planned: PlannedStage, chip: Chip, responses: Responses
) -> RoundEstimate:
    """Estimate a round.

    Args:
        plan: All stages of the recipe.
        planned: The stage ``rl``.
        chip: The device.
        responses: Counts the responses, with the user's numbers.

    Raises:
        InputError: As in `round_data`.
    """
    config = planned.spec.config
    assert isinstance(config, RlConfig)
    job, mean = read_training(planned_yaml(planned)), responses.mean_tokens(planned.spec)
    size = round_data(config, mean)
    placement = planned.recipe.launch.placement
    programs = [one for one in tested(plan, responses) if one.stage == planned.title]
    whole = sum(slice_numbers(job, one) * job.tensor for one in range(job.stages))
    return RoundEstimate(
        stage=planned.title,
        config=config,
        tokens=mean,
        size=size,
        problems=_problems(planned, responses),
        sampling=_sampling(plan, planned, job, chip, responses),
        now=choice(layout_title(job), job, chip, size),
        update_seconds=update_seconds(job, chip),
        tests=programs[0] if programs else None,
        workers=place(placement)[1],
        slice_bytes=FLOAT32 * stored_numbers(job),
        folder_bytes=whole * (2 if config.weights_dtype == "bfloat16" else FLOAT32),
        hosts=len(config.trains_on(placement).hosts),
    )


def round_data(config: RlConfig, mean: Counted) -> DataSize:
    """Work out rows and micro-steps of a round in which every response has an advantage.

    Args:
        config: The stage's settings.
        mean: Mean tokens of a response.

    Raises:
        InputError: The mean is greater than the longest response.
    """
    longest = config.max_new_tokens or config.max_model_len
    if mean.number > longest:
        raise InputError(
            f"--response-tokens {mean.number:g}: longer than the longest response of the stage rl, "
            f"max_new_tokens {longest:,}. Give the mean of the responses."
        )
    tokens = mean.number + PROMPT_TOKENS
    rows = exact_fill(config.responses * tokens, config.row_tokens)
    return DataSize(
        segments=config.responses,
        segment_tokens=tokens,
        rows=rows,
        rows_before=rows,
        row_tokens=config.row_tokens,
        global_rows=config.rows,
        epochs=1,
        steps=ceil(rows / config.rows),
        notes=(
            f"tokens per response: {mean.source}; {PROMPT_TOKENS} tokens per prompt ASSUMED",
            "rows: at most, because responses without an advantage are left out"
            if config.skip_without_advantage
            else "rows: of all responses",
        ),
    )


def _problems(planned: PlannedStage, responses: Responses) -> Counted | None:
    """Return the number of problems of the stage's input, as published or as given."""
    published: Mapping[str, int] = published_counts(planned.recipe.published)
    (name,) = planned.spec.inputs["problems"]
    if name in published:
        return Counted(published[name], f"published, after {name}")
    if responses.problems is not None:
        return Counted(responses.problems, "given, filters before the stage not counted")
    return None


def _sampling(
    plan: Plan, planned: PlannedStage, job: Training, chip: Chip, responses: Responses
) -> SamplingEstimate | None:
    """Estimate what the stage asks of the policy's servers."""
    for asked in asked_of_servers(plan, responses):
        if asked.planned.title == planned.title and asked.needs.kind == "sampling":
            return estimate_sampling(trained_model(job), chip, asked.workload)
    return None
