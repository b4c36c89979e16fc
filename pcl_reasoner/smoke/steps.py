"""The parts that run one command each and read what it wrote."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import join_errors
from pcl_reasoner.core.json_lines import own_json
from pcl_reasoner.estimate.saves import CHECKPOINT_BYTES, checkpoint_bytes
from pcl_reasoner.estimate.training_size import read_training
from pcl_reasoner.hardware_check.outcome import Check, Outcome
from pcl_reasoner.preflight.check import StartCheck
from pcl_reasoner.smoke.assumptions import configuration
from pcl_reasoner.smoke.trial import Trial
from pcl_reasoner.supervise.connection import LOCAL, SSH
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.version_check.hosts import check_launch
from pcl_reasoner.weights.conversion import PARITY
from pcl_reasoner.weights.stream import weight_files

QUESTIONS = 30
RANDOM_BYTES, MADE_BYTES = 2, 10
"""Bytes per parameter of random weights, and of what is made of them: their conversion (2), the
merged checkpoint and the exported folder (4 each)."""
PROOF = "proof.json"


def versions(trial: Trial) -> Outcome:
    """Compare the versions of every engine of every host, as ``pclr-ms doctor --launch``.

    Hosts are numbered, because the report has no names.
    """
    launch = trial.recipe.launch
    how = trial.start or (LOCAL if launch.placement.hosts == ["localhost"] else SSH)
    found = check_launch(launch, how)
    hosts = list(dict.fromkeys(one.host for one in found))
    names = [f"host {hosts.index(one.host) + 1}, {one.program}: {one.name}" for one in found]
    return Outcome(
        [
            Check(name, one.found, one.wanted, one.advice, 0, one.ok)
            for name, one in zip(names, found, strict=True)
        ]
    )


def preflight(trial: Trial) -> Outcome:
    """Check the recipe, the launch file and the disk, as ``pclr-ms run`` does before it starts.

    Raises:
        InputError: All that is wrong.
    """
    checks = StartCheck("evaluate", trial.runs, trial.start)
    found = checks.verdict(trial.plan, trial.plan.stages)
    if found.errors:
        raise join_errors(found.errors)
    free, needed = shutil.disk_usage(nearest_folder(trial.runs)).free, needed_bytes(trial)
    enough = Check("free bytes on the disk", free, f"at least {needed}", "", 0, free >= needed)
    return Outcome([enough], {"warnings": len(found.warnings)})


def needed_bytes(trial: Trial) -> int:
    """Return the bytes that the trial writes at most: weights, checkpoints, the export."""
    planned = trial.stage("train")
    config, job = planned.spec.config, read_training(configuration(planned))
    assert isinstance(config, TrainConfig)
    numbers = checkpoint_bytes(job) // CHECKPOINT_BYTES // (1 if job.optimizer_shard else job.data)
    per_number = MADE_BYTES + (0 if trial.model else RANDOM_BYTES)
    return config.most_checkpoints(None) * checkpoint_bytes(job) + per_number * numbers


def nearest_folder(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that is there already."""
    return next(one for one in (folder, *folder.parents) if one.is_dir())


def weights(trial: Trial) -> Outcome:
    """Write random weights, or look at the user's own."""
    policy = trial.stage("train").inputs["policy"].path
    if trial.model is None:
        trial.call("weights", trial.run_words("random_model"))
    size = sum(file.stat().st_size for file in weight_files(policy))
    measured: dict[str, Any] = {"bytes": size, "random": trial.model is None}
    if trial.model is None:
        measured["write_seconds"] = trial.manifest("random_model")["seconds"]
    return Outcome(measured=measured)


def rows(trial: Trial) -> Outcome:
    """Make artificial rows and pack them."""
    trial.call("rows", trial.run_words("pack"))
    packed = own_json(trial.stage("pack").folder / "accounting.json")
    names = ("rows", "segments", "tokens", "fill")
    return Outcome(measured={name: packed[name] for name in names})


def convert(trial: Trial) -> Outcome:
    """Convert the weights to MindFormers' names; ``pclr-ms convert`` reads back what it wrote."""
    policy = trial.stage("train").inputs["policy"].path
    converted = trial.folder / "converted"
    shutil.rmtree(converted, ignore_errors=True)
    try:
        trial.call("convert", ["convert", str(policy), str(converted), "--to", "mindformers"])
        tensors = len(own_json(converted / PARITY)["tensors"])
    finally:
        shutil.rmtree(converted, ignore_errors=True)
    return Outcome(measured={"tensors": tensors})


def export(trial: Trial) -> Outcome:
    """Write the trained weights as a Hugging Face folder; the stage compares every tensor."""
    trial.call("export", trial.run_words("export"))
    folder = trial.stage("export").folder
    size = sum(file.stat().st_size for file in weight_files(folder))
    tensors = len(own_json(folder / PARITY)["tensors"])
    return Outcome(measured={"tensors": tensors, "bytes": size})


def prove(trial: Trial) -> Outcome:
    """Serve the exported weights, and compare their log-probs with the checkpoint's."""
    trial.call("prove", trial.run_words("prove"))
    proof = own_json(trial.stage("prove").folder / PROOF)
    checks = [
        Check(
            f"server {number}: {name} difference in nats",
            one["difference"][name],
            0.0,
            one["difference"][name],
            one["limits"][name],
            one["difference"][name] <= one["limits"][name],
        )
        for number, one in enumerate(proof["servers"])
        for name in ("mean", "p99", "largest")
    ]
    first = proof["servers"][0]
    measured = {
        "engine": trial.stage("prove").spec.config.model_dump()["engine"],
        "servers": len(proof["servers"]),
        "server_version": first.get("version"),
        "tokens": first["difference"]["tokens"],
    }
    return Outcome(checks, measured)


def answers(trial: Trial) -> Outcome:
    """Draw an answer to each of 30 questions, and grade it."""
    trial.call("answers", trial.run_words("evaluate"))
    told = trial.manifest("evaluate")
    scores = own_json(trial.stage("evaluate").folder / "scores.json")
    found, score = scores["responses"], scores["benchmarks"]["benchmark"]
    given = score["problems"] - found["failed"]
    checks = [Check("answers", given, QUESTIONS, QUESTIONS - given, 0, given == QUESTIONS)]
    starts = [one.get("start_seconds", 0.0) for one in found.get("servers", ())]
    measured = {
        "tokens": found["tokens"],
        "finish_reasons": found["finish_reasons"],
        "correct": round(score["avg_at_n"] / 100 * score["problems"]),
        "request_seconds": told["counts"]["info"].get("request_seconds"),
        "start_seconds": max(starts, default=None),
        "servers": len(found.get("servers", ())),
        "stage_seconds": told["seconds"],
    }
    return Outcome(checks, measured)
