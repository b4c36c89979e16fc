"""Runs the smoke test part by part, and reports as JSON; the same on a CPU and on a cluster.

    {"format": 1, "package": "0.1.0", "date": "2026-11-24", "launch": "one_node_7b",
     "layout": {"data_parallel": 1, "model_parallel": 4, "pipeline_stage": 2}, "device": "Ascend",
     "model": {"num_layers": 28, …}, "machine": {…}, "versions": {"mindspore": "2.7.2", …},
     "parts": [{"name": "train", "title": "…", "status": "ok", "why": "", "seconds": 612.0,
                "checks": [{"name": "the loss falls", "got": 10.2, …}], "measured": {…}}, …],
     "plan": {"assumptions": […], "hours": […], "notes": […]}}

``status`` is ok, wrong, or not run.
"""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from pcl_reasoner import __version__
from pcl_reasoner.core.errors import InputError, PclError
from pcl_reasoner.hardware_check.check import NOT_RUN, OK, WRONG, without_names
from pcl_reasoner.hardware_check.outcome import Outcome
from pcl_reasoner.runner.runner import versions as installed_versions
from pcl_reasoner.smoke import assumptions, interruption, steps
from pcl_reasoner.smoke.trial import Kept, Trial, refuse_impossible
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.shape import shape_of

FORMAT = 1
Report = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One part of the smoke test.

    Args:
        title: What it does.
        run: Runs it.
        needs: Parts without which it is not run.
    """

    title: str
    run: Callable[[Trial], Outcome]
    needs: tuple[str, ...] = ()


PARTS: dict[str, Part] = {
    "versions": Part("versions of every engine on every host", steps.versions),
    "preflight": Part("recipe, model and launch file against one another", steps.preflight),
    "weights": Part("random weights, or your own", steps.weights, ("preflight",)),
    "rows": Part("artificial rows, packed", steps.rows, ("preflight",)),
    "convert": Part("weights by MindFormers' names", steps.convert, ("weights",)),
    "train": Part("train, save, two more steps, SIGKILL", interruption.train, ("weights", "rows")),
    "resume": Part("resume, the two steps again, the rest", interruption.resume, ("train",)),
    "export": Part("trained weights by Hugging Face's names", steps.export, ("resume",)),
    "prove": Part("servers compute what the checkpoint computes", steps.prove, ("export",)),
    "answers": Part("30 answers of the trained model", steps.answers, ("prove",)),
}
"""Name -> part, in the order in which they run."""


def smoke(
    trial: Trial, again: bool, begin: Callable[[str], None], say: Callable[[Report], None]
) -> Report:
    """Run all parts and return the report.

    Args:
        trial: The trial.
        again: Run also the parts that were ok before.
        begin: Called with a part's title when it starts.
        say: Called with each part's entry when it has ended.

    Raises:
        InputError: The launch file names several hosts, and nothing would start there; or the
            model's folder does not exist.
    """
    refuse_impossible(trial)
    kept, made = Kept(trial, again), set[str]()
    for name, part in PARTS.items():
        lacking = [one for one in part.needs if trial.outcomes[one]["status"] != OK]
        if lacking:
            entry = _entry(name, NOT_RUN, f"needs {', '.join(lacking)}")
        elif name in kept.parts and not made.intersection(part.needs):
            entry = kept.parts[name]
        else:
            begin(f"{name}: {part.title}")
            entry = _run(name, part, trial)
            made.add(name)
        trial.outcomes[name] = entry
        if entry["status"] == OK:
            kept.keep(entry)
        say(entry)
    return _report(trial)


def _run(name: str, part: Part, trial: Trial) -> Report:
    began = time.monotonic()
    try:
        outcome = part.run(trial)
    except PclError as error:
        return _entry(name, WRONG, str(error), time.monotonic() - began)
    wrong = [check for check in outcome.checks if not check.ok]
    why = f"{len(wrong)} of {len(outcome.checks)} comparisons" if wrong else ""
    found = asdict(outcome)
    del found["figures"]
    return _entry(name, WRONG if wrong else OK, why, time.monotonic() - began) | found


def _entry(name: str, status: str, why: str, seconds: float = 0.0) -> Report:
    return {
        "name": name,
        "title": PARTS[name].title,
        "status": status,
        "why": why,
        "seconds": round(seconds, 1),
        "checks": [],
        "measured": {},
    }


def _report(trial: Trial) -> Report:
    planned = trial.stage("train")
    config = planned.spec.config
    assert isinstance(config, TrainConfig)
    layout = ("data_parallel", "model_parallel", "pipeline_stage")
    is_written = trial.outcomes["weights"]["status"] == OK
    shape = shape_of(config, planned.inputs["policy"].path) if is_written else config.model
    return {
        "format": FORMAT,
        "package": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "launch": trial.recipe.launch.name,
        "device": config.device,
        "layout": {name: getattr(config, name) for name in layout},
        "model": shape.model_dump() if shape else None,
        "machine": {"architecture": platform.machine(), "system": platform.system()},
        "versions": installed_versions(),
        "parts": list(trial.outcomes.values()),
        "plan": _plan(trial),
    }


def shareable(report: Report) -> Report:
    """Return the report without host names, user names, addresses and folders."""
    notes = [_without_names(note) for note in report["plan"]["notes"]]
    parts = [
        {
            **part,
            "why": _without_names(part["why"]),
            "checks": [
                {key: _without_names(value) for key, value in check.items()}
                for check in part["checks"]
            ],
        }
        for part in report["parts"]
    ]
    return {**report, "parts": parts, "plan": {**report["plan"], "notes": notes}}


def _without_names(value: Any) -> Any:
    """Remove names from a text; a number is returned as it is."""
    if not isinstance(value, str):
        return value
    return "\n".join(without_names(line) for line in value.splitlines())


def _plan(trial: Trial) -> dict[str, Any]:
    """What the trial says about the plan; only why not, if training did not end."""
    if trial.outcomes["resume"]["status"] != OK:
        return {"assumptions": [], "hours": [], "notes": ["training did not end: no assumption"]}
    answered = trial.outcomes["answers"]["measured"] or {"start_seconds": 0, "request_seconds": 0}
    try:
        return assumptions.changed_assumptions(trial, answered)
    except InputError as error:  # what the trial has shown is worth more than the plan
        return {"assumptions": [], "hours": [], "notes": [str(error)]}
