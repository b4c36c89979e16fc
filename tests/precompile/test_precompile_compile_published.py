"""All pipeline stages of both published layouts and of rl's, narrow: no gradient is wrong."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="steps into the x86-64 wheel"),
]

LAYOUTS = {
    "v1_sft": ("v1_dp8_tp8_pp2", "train", [0, 64]),
    "v15_opg": ("atlas_910c_16x8", "train", [0, 32, 64, 96]),
    "am_thinking_v1": ("atlas_910c_rl", "rl_1", [0, 16, 32, 48]),
}
"""Recipe -> launch file, stage, the first rank of each pipeline stage."""


def compile_rank(recipe: str, rank: int, folder: Path) -> dict[str, Any]:
    launch, stage, _ = LAYOUTS[recipe]
    runs = folder / f"{recipe}-{rank}"
    subprocess.run(
        [
            *(sys.executable, "-m", "pcl_reasoner.cli", "compile", recipe),
            *("--launch", launch, "--stage", stage, "--scale", "small", "--ranks", str(rank)),
            *("--runs", str(runs)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    file = runs / recipe / "compile" / stage / "compile.json"
    (found,) = json.loads(file.read_text())["ranks"]
    return dict(found)


def test_no_all_reduce_is_merged_and_nothing_is_redistributed(tmp_path: Path) -> None:
    """Two at a time; one takes half a minute."""
    jobs = [(recipe, rank) for recipe, (*_, ranks) in LAYOUTS.items() for rank in ranks]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda job: compile_rank(*job, tmp_path), jobs))
    for (recipe, rank), compiled in zip(jobs, found, strict=True):
        communications = compiled["communications"]
        assert compiled["rank"] == rank and communications, recipe
        assert [one for one in communications if one["merged"] or one["in_our_code"]] == []
    # Only the last stage of each has the loss, and gathers the parts' scores over eight ranks.
    gathers = {
        job
        for job, compiled in zip(jobs, found, strict=True)
        for one in compiled["communications"]
        if "combined_scores" in one["where"] and one["operation"] == "AllGather"
    }
    assert gathers == {("v1_sft", 64), ("v15_opg", 96), ("am_thinking_v1", 48)}
