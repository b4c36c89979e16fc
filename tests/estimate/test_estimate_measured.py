"""A plan calibrated by the files of a run, by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from measured_runs import times, write_run
from plan_trainings import SMALL

from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.measured import calibrate, read_run
from pcl_reasoner.estimate.saves import Run, largest_slices, waiting
from pcl_reasoner.estimate.time_estimate import Rows, step_time
from pcl_reasoner.precompile import compile_plan
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe

CHIP = Chip(
    "round", "a chip", 2e9, 1e9, 5e8, 4_000_000, 1e8, 1e6, 1e5, 1e6, 4, "",
    {"matrix": 0.5, "attention": 0.25, "link": 0.7, "memory": 0.7},
)  # fmt: skip
"""Half of 2e9 operations per second in products, a quarter in attention."""
V15 = ("v15_opg", "atlas_910c_16x8")


def v15_config(tmp_path: Path, every: int = 2) -> dict[str, Any]:
    """V1.5's own configuration, with a save after every second step."""
    config = compile_plan.configuration(make_plan(load_recipe(*V15), tmp_path, until="train"))
    for one in config["callbacks"]:
        if one["type"] == "CheckpointMonitor":
            one["save_checkpoint_steps"] = every
    return config


def test_what_the_files_say(tmp_path: Path) -> None:
    """Steps 3 and 5 are plain; 2 and 4 are followed by a save; 1 has the start's delay."""
    slow = [*times(8.0, save=30.0), {"step": 7, "seconds": 8.0, "after": 1.0}]
    found = read_run(write_run(tmp_path / "run", slow, v15_config(tmp_path)))
    assert (found.steps, found.seconds) == (3, 9.0)  # 8 and 1 until the next step begins
    assert found.save == 30.0
    assert found.start == 300 + 58 - 8
    # 7 lines of 200 tokens and 4 responses each.
    assert (found.trained_tokens, found.segments) == (50.0, 4.0)
    assert found.job is not None and found.job.devices == 128 and found.device == "Ascend"


def test_without_a_configuration_a_save_is_a_step_like_others(tmp_path: Path) -> None:
    found = read_run(write_run(tmp_path / "run", times(8.0)))
    assert (found.job, found.save, found.steps) == (None, None, 4)


def test_a_run_of_too_few_steps_is_refused(tmp_path: Path) -> None:
    file = write_run(tmp_path / "run", times(8.0)[:3])
    with pytest.raises(InputError, match="2 timed steps between two others, expected at least 3"):
        read_run(file)
    (tmp_path / "run" / "seconds.jsonl").unlink()
    with pytest.raises(InputError, match="seconds.jsonl: 0 timed steps"):
        read_run(file)
    with pytest.raises(InputError, match="other/metrics.jsonl: no such file"):
        read_run(tmp_path / "other" / "metrics.jsonl")


def test_a_configuration_of_another_kind_is_refused(tmp_path: Path) -> None:
    file = write_run(tmp_path / "run", times(8.0), {"callbacks": []})
    with pytest.raises(InputError, match="not the configuration of a stage train"):
        read_run(file)


def test_the_shares_reproduce_the_runs_steps(tmp_path: Path) -> None:
    """A step takes what it takes with products at 20 % of the peak and attention at 10 %.

    4 responses of 50 trained tokens and 50 others are 400 tokens, in 4 rows of 100: full rows.
    """
    rows = Rows(100.0, 1.0)
    slower = replace(CHIP, matrix=0.2 * 2e9, attention=0.1 * 2e9)
    seconds = sum(step_time(SMALL, slower, rows).values())
    assert SMALL.global_rows * SMALL.row_tokens == 400
    run = read_run(write_run(tmp_path / "run", times(seconds, after=0.0)))
    found = calibrate(run, SMALL, CHIP, per_host=4, prompt_tokens=50)
    assert found.chip.assumed["matrix"] == pytest.approx(0.2, rel=1e-4)
    assert found.chip.assumed["attention"] == pytest.approx(0.1, rel=1e-4)
    assert found.chip.measured == {"matrix", "attention"}
    again = sum(step_time(SMALL, found.chip, rows).values())
    assert again == pytest.approx(seconds, rel=1e-4)
    # Links and memory stay as assumed.
    assert (found.chip.node, found.chip.memory) == (CHIP.node, CHIP.memory)
    assert found.segment_tokens == 100.0
    told = {row[0]: row[1:3] for row in found.rows}
    assert told["matrix: share of its peak"] == ("50%", "20.0%")
    assert told["tokens per segment"] == ("as below", "100")


def test_a_run_faster_than_the_peak_changes_no_share(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", times(1e-9, after=0.0)))
    found = calibrate(run, SMALL, CHIP, per_host=4, prompt_tokens=50)
    assert found.chip is CHIP and "faster than the estimate" in found.notes[0]


def test_a_measured_save_gives_the_rate_of_files(tmp_path: Path) -> None:
    """The rate that is found makes the save last as long as it did."""
    slices = largest_slices(SMALL)
    wanted = slices / 1e6 + 4 * slices / 5e5 + slices / 1e9  # 4 ranks per host at 5e5 bytes/s
    run = replace(read_run(write_run(tmp_path / "run", times(8.0))), save=wanted)
    found = calibrate(run, SMALL, CHIP, per_host=4, prompt_tokens=50)
    assert found.waits.file_rate == pytest.approx(5e5)
    assert "file_rate" in found.waits.measured
    of_8_ranks = Run(SMALL, 2, steps=10, checkpoint_steps=2, seconds=8.0, folder_bytes=0.0)
    assert sum(waiting(of_8_ranks, CHIP, found.waits).save.values()) == pytest.approx(wanted)


def test_a_start_counts_only_for_the_same_training(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", times(8.0)))
    same = calibrate(run, SMALL, CHIP, per_host=4, prompt_tokens=50)
    assert same.waits.start_seconds == 350.0  # 300 before the first step, which took 50 longer
    other = replace(run, job=replace(SMALL, layers=8, stage_layers=(4, 4)))
    found = calibrate(other, SMALL, CHIP, per_host=4, prompt_tokens=50)
    assert found.waits.start_seconds is None
    assert any("350 s is of another layout" in note for note in found.notes)


def test_a_run_on_a_cpu_is_named(tmp_path: Path) -> None:
    """Its configuration has no limit of device memory."""
    config = v15_config(tmp_path, every=100)
    config["context"]["device_target"] = "CPU"
    del config["context"]["max_device_memory"]
    run = read_run(write_run(tmp_path / "run", times(8.0), config))
    found = calibrate(run, SMALL, CHIP, per_host=4, prompt_tokens=50)
    assert found.notes[0] == "the run was on a CPU: its shares say nothing about a chip"


def test_the_command_prints_the_plan_again_with_what_was_measured(tmp_path: Path) -> None:
    """V1.5 at 200 s per step: 1 061 steps take 58.9 h; the assumed shares give 29.2 h.

    A step has 128 rows of one response: 20 280 trained tokens, and 200 of a prompt.
    """
    slow = [*times(199.0, save=30.0), {"step": 7, "seconds": 199.0, "after": 1.0}]
    file = write_run(tmp_path / "run", slow, v15_config(tmp_path), 128, 20_280)
    words = ["plan", V15[0], "--launch", V15[1], "--runs", str(tmp_path / "runs")]
    said = CliRunner().invoke(cli, [*words, "--measured", str(file)], catch_exceptions=False).output
    [total] = [one.split() for one in said.splitlines() if re.match("total .*%$", one)]
    assert total[1:3] == ["200.00", f"{1061 * 200 / 3600:.1f}"] == ["200.00", "58.9"]
    assert "27,174 segments of 20,480 tokens" in said
    assert f"measured by {file}" in said
    assert "matrix: share of its peak" in said and " MEASURED" in said
    value = json.loads((tmp_path / "runs" / "v15_opg" / "plan" / "train" / "plan.json").read_text())
    assert value["measured"]["run"]["seconds"] == 200.0
    assert value["chip"]["measured"] == ["attention", "matrix"]
    figures = {one["figure"]: one for one in value["uncertainties"]}
    assert figures["hours of v15_opg/train"]["could be"] == ""
    assert (
        figures["seconds of a save"]["could be"] == ""
        and figures["seconds of a save"]["estimate"] == "30.0 s"
    )
    assert "350 s" in said.split("first start")[1].split("\n")[0]
