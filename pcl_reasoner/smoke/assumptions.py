"""What the trial says about the plan: which assumptions it changes, and to what.

{"assumptions": [{"assumption": "matrix: share of its peak", "assumed": "60%",
                  "measured": "31.2%", "how": "reproduces the steps"}, …],
 "hours": [{"stage": "v15_opg/train", "assumed": 91.0, "measured": 166.0}, …],
 "notes": ["the run was on a CPU: its shares say nothing about …"]}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcl_reasoner.budget.plan_training import Planned, plan_training
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.json_lines import own_json
from pcl_reasoner.estimate.chips import Chip, chip_name, read_chip
from pcl_reasoner.estimate.training_size import compute_type
from pcl_reasoner.rl.render import planned_yaml
from pcl_reasoner.runner.plan import Plan, PlannedStage, make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.smoke.trial import Trial

RECIPES = ("v1_sft", "v15_opg")
"""Shipped recipes whose hours are estimated again."""
NO_OPTIONS: dict[str, Any] = dict.fromkeys(
    ("segments", "segment_tokens", "problems", "measured_hours", "response_tokens", "dry_run")
)
LENGTH, BELOW = "tokens per segment", "as below"
"""A row that says nothing about artificial data, and words that point at the plan's own output."""

Row = dict[str, Any]


def changed_assumptions(trial: Trial, answered: Row) -> dict[str, Any]:
    """Compare the plan's assumptions with what the trial measured.

    Args:
        trial: The trial; its stage ``train`` is done.
        answered: What the part ``answers`` measured.
    """
    metrics = trial.stage("train").folder / "metrics.jsonl"
    packed = own_json(trial.stage("pack").folder / "accounting.json")
    options = {**NO_OPTIONS, "segments": packed["segments"], "measured": metrics}
    until = make_plan(trial.recipe, trial.runs, until="train")
    own = _planned(until, trial.plan, options)
    assert own.calibration is not None
    rows = [
        _row(name, "" if old == BELOW else old, *rest)
        for name, old, *rest in own.calibration.rows
        if name != LENGTH
    ]
    rows += [*_resume(own, trial), *_served(own, answered, trial)]
    return {
        "assumptions": rows,
        "hours": list(_hours(trial, metrics)),
        "notes": list(own.calibration.notes),
    }


def _planned(until: Plan, whole: Plan, options: Row) -> Planned:
    """Estimate the last stage of ``until``, which trains; on a CPU too, for the same steps."""
    planned = until.stages[-1]
    config = configuration(planned)
    chip = _chip(until, compute_type(config))
    return plan_training(planned, whole, config, chip, options)


def configuration(planned: PlannedStage) -> dict[str, Any]:
    """Return the MindFormers configuration of a stage as the plan reads it, also of a CPU's."""
    config = planned_yaml(planned)
    config["context"].setdefault("max_device_memory", "58GB")  # a CPU has no such limit
    return config


def _chip(plan: Plan, precision: str) -> Chip:
    return read_chip(chip_name(None, plan.recipe.launch.placement), precision)


def _resume(own: Planned, trial: Trial) -> Iterator[Row]:
    """What the interruption cost, without the steps that were made again."""
    parts = own.course.waited.resume.items()
    assumed = sum(seconds for name, seconds in parts if not name.startswith("repeat"))
    seconds = trial.outcomes["resume"]["measured"]["start_seconds"]
    how = "process start to its first step, after the kill"
    yield _row("resume", f"{assumed:,.0f} s", f"{seconds:,.0f} s", how)


def _served(own: Planned, answered: Row, trial: Trial) -> Iterator[Row]:
    """The start of servers, and the time of a token."""
    serving = trial.recipe.launch.placement.serving_of("sampling")
    if serving and answered["start_seconds"]:
        limit = f"at most {serving.start_seconds:,.0f} s"
        how = "start to the first answer of /health"
        yield _row("start of a server", limit, f"{answered['start_seconds']:,.0f} s", how)
    if not answered["request_seconds"]:
        return
    seconds = answered["request_seconds"] / answered["tokens"]
    for one in own.sampling:
        if one.cost is not None and one.workload.tokens:
            assumed = f"{one.cost.seconds_per_token * 1000:.2f} ms"
            how = f"a request's seconds per token, {one.cost.at_once} answers at a time"
            yield _row("a token of each answer", assumed, f"{seconds * 1000:.2f} ms", how)


def _row(assumption: str, assumed: str, measured: str, how: str) -> Row:
    return {"assumption": assumption, "assumed": assumed, "measured": measured, "how": how}


def _hours(trial: Trial, metrics: Path) -> Iterator[Row]:
    """The hours of the shipped recipes' training with this launch file, before and after."""
    if trial.stage("train").spec.config.model_dump()["device"] == "CPU":
        return
    yield from recipe_hours(trial.launch, trial.runs, metrics)


def recipe_hours(launch: str, runs: Path, metrics: Path) -> Iterator[Row]:
    """Estimate the training of each shipped recipe, by assumptions and by a measured run.

    Args:
        launch: The launch file.
        runs: Folder of runs, for the plans' paths.
        metrics: metrics.jsonl of the measured run.
    """
    for name in RECIPES:
        recipe = load_recipe(name, launch=launch)
        until, whole = make_plan(recipe, runs, until="train"), make_plan(recipe, runs)
        try:
            assumed = _planned(until, whole, {**NO_OPTIONS, "measured": None})
            # The trial's data are artificial: only its speed counts.
            tokens = assumed.size.segment_tokens
            options = {**NO_OPTIONS, "segment_tokens": tokens, "measured": metrics}
            measured = _planned(until, whole, options)
        except InputError as error:
            yield {"stage": f"{name}/train", "not_estimated": str(error)}
            continue
        hours = {"assumed": round(assumed.now.hours, 2), "measured": round(measured.now.hours, 2)}
        yield {"stage": f"{name}/train", **hours}
