"""Odd model folders: a policy's folder is damaged before a command reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml
from end_to_end_helpers import folder_of
from odd_model_folders import KINDS, write_good
from trial import FIRM, FOUND, Bad, Outcome, Work

RECIPE = {
    "name": "odd",
    "profiles": {"laptop": "odd_laptop.yaml"},
    "stages": {
        "sample": {"n": 1, "max_new_tokens": 4, "max_model_len": 512},
        "tokenize": {
            "source": "responses",
            "max_segment_tokens": 600,
            "inputs": {"responses": "sample"},
        },
    },
}


def odd_folder(work: Work) -> Outcome:
    """Convert, evaluate, or sample and tokenize with a damaged model."""
    kind = work.rng.choice(sorted(KINDS))
    door = work.rng.choice(["convert", "sample", "sample", "eval"])
    work.target = f"{door}: {kind}"
    model = work.folder / "output" / "model"
    model.mkdir(parents=True)
    write_good(model)
    KINDS[kind](model)
    answer = work.call(*_words(work, door, model))
    if answer.code == 0:
        return Outcome(work.target, FIRM, "nothing of it was read")
    if "error: " not in answer.text.lower() or str(model) not in answer.text:
        raise Bad(f"exit code {answer.code} without an error that names {model}:\n{answer.text}")
    if partial := [one.name for one in (work.folder / "output").glob("*.partial")]:
        shutil.rmtree(work.folder / "output" / partial[0])
    return Outcome(work.target, FOUND, answer.text[-400:])


def _words(work: Work, door: str, model: Path) -> list[str]:
    output = str(work.folder / "output" / "made")
    benchmark = folder_of(work.scene.runs, "v1_sft/synthetic") / "benchmark.jsonl"
    settings = ["--set", "max_new_tokens=4", "--set", "max_model_len=512", "-n", "1"]
    if door == "convert":
        return ["convert", str(model), output, "--to", "mindformers"]
    if door == "eval":
        named = ["--benchmark", f"b={benchmark}", "--output", output]
        return ["eval", f"m={model}", *named, *settings, "--runs", str(work.runs)]
    problems = folder_of(work.scene.runs, "v15_opg/contamination")
    sources = {"problems": {"path": str(problems)}, "policy": {"path": str(model), "kind": "model"}}
    stages = {
        name: {**stage, "inputs": {**stage.get("inputs", {}), "problems": "problems"}}
        for name, stage in RECIPE["stages"].items()
    }
    recipe = work.folder / "output" / "odd.yaml"
    recipe.write_text(yaml.safe_dump({**RECIPE, "sources": sources, "stages": stages}))
    recipe.with_name("odd_laptop.yaml").write_text("{}")
    return ["run", str(recipe), "--runs", str(work.runs)]
