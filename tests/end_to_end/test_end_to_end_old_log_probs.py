"""A recipe switched to a loss that compares with the old policy, and looked at by ``inspect``.

About 30 s on two cores: what comes before is taken from the whole run.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import mean

import pytest
import yaml
from end_to_end_helpers import Whole, call, folder_of

from pcl_reasoner.pack.arrow_folder import read_arrow_folder

pytestmark = pytest.mark.slow


def switch_to_topr(whole: Whole, folder: Path) -> Path:
    """The whole run's recipes, with ``old_log_probs`` before ``pack`` and the loss ``topr``."""
    shutil.copytree(whole.recipe.parent, folder)
    recipe = folder / whole.recipe.name
    value = yaml.safe_load(recipe.read_text())
    stages = value["stages"]
    stages["old_log_probs"] = {"seq_length": 256, "max_segments": 16, "rows": 4}
    stages["pack"]["inputs"] = {"samples": "old_log_probs"}
    recipe.write_text(yaml.safe_dump(value, sort_keys=False))
    return recipe


def test_topr_from_a_recipe_to_trained_weights_and_under_the_microscope(
    whole: Whole, tmp_path: Path
) -> None:
    recipe = switch_to_topr(whole, tmp_path / "recipes")
    runs = tmp_path / "runs"
    shutil.copytree(whole.runs, runs)
    for name in ("pack", "train"):
        shutil.rmtree(folder_of(runs, f"v15_opg/{name}"))
    words = (recipe, "--runs", runs, "train.loss=topr")

    without = call("run", *words[:3], "--until", "train", "pack.inputs.samples=tokenize", words[3])
    assert without.returncode == 2  # before the first stage
    assert (
        "the loss topr needs old_log_probs_mean" in without.stderr
        and "old_log_probs" in without.stderr
    )

    answer = call("run", *words, "--until", "train")
    assert (answer.returncode, answer.stderr) == (0, "")
    metrics = (folder_of(runs, "v15_opg/train") / "metrics.jsonl").read_text().splitlines()
    first, last = json.loads(metrics[0]), json.loads(metrics[-1])
    # No response of the small run is correct: each weighs 1/N · clip(e^(m − m₀), 0, 1), which is 1
    # before the first step, and falls as incorrect responses become less likely.
    assert (first["correct_count"], first["incorrect_count"] > 0) == (0, True)
    assert first["incorrect_weight"] == pytest.approx(1.0, rel=1e-4)
    assert last["incorrect_weight"] < first["incorrect_weight"]
    assert first["incorrect_entropy"] > 0 and first["clipped"] is None

    looked = tmp_path / "looked.jsonl"
    answer = call("inspect", *words, "--responses", "4", "--output", looked)
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = [json.loads(line) for line in looked.read_text().splitlines()]
    samples = read_arrow_folder(folder_of(runs, "v15_opg/old_log_probs")).to_pylist()
    by_key = {(row["problem_id"], row["sample_index"]): row for row in samples}
    assert len(lines) == 4
    for line in lines:
        sample = by_key[line["problem_id"], line["sample_index"]]
        assert line["m"] == pytest.approx(sample["old_log_probs_mean"], rel=1e-5)
        assert line["weight"] == pytest.approx(0.25, rel=1e-4)
        assert line["length"] == sum(label != -100 for label in sample["labels"])
        assert f"{line['problem_id'][:8]}/{line['sample_index']}" in answer.stdout
        figures = [token["figure"] for token in line["tokens"]]
        assert figures == sorted(figures, reverse=True)
    assert mean(line["entropy"] for line in lines) > 0
