"""What training waits for, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plan_trainings import SMALL, recipe_training

from pcl_reasoner.estimate import saves
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.memory_estimate import parameters_held
from pcl_reasoner.estimate.saves import Run, Waits, waiting

CHIP = Chip("round", "", 2e9, 1e9, 5e8, 4_000_000, 1e8, 1e6, 1e5, 1e6, 4, "", {"matrix": 0.5})
"""Swaps 1e6 bytes per second."""
HELD = max(parameters_held(SMALL, stage) for stage in (0, 1))
RUN = Run(SMALL, 2, steps=250, checkpoint_steps=100, seconds=3.0, folder_bytes=8e9)


def test_a_save_by_hand() -> None:
    """8 ranks on 2 hosts: each writes four ranks' slices of 12 bytes per parameter."""
    found = waiting(RUN, CHIP, Waits(file_rate=1000.0))
    assert found.saves == 3  # after 100, 200 and the last
    assert found.save == {
        "copy to the host": pytest.approx(12 * HELD / 1e6),
        "write": pytest.approx(4 * 12 * HELD / 1000),
        "seal": pytest.approx(12 * HELD / 1e9),
    }
    assert found.start == {"compile": 240.0, "read the weights": 8e9 / 1000}
    whole = sum(found.start.values()) + 3 * sum(found.save.values())
    assert found.seconds == pytest.approx(whole) and found.hidden == 0


def test_an_asynchronous_save_hides_only_the_write() -> None:
    plain = waiting(RUN, CHIP, Waits()).save
    found = waiting(replace(RUN, is_async=True), CHIP, Waits())
    assert found.hidden == plain.pop("write") and found.save == plain


def test_an_interruption_repeats_half_of_the_steps_between_two_saves() -> None:
    found = waiting(RUN, CHIP, Waits(file_rate=1000.0)).resume
    # All ranks' slices: two stages of four ranks.
    stored = sum(4 * parameters_held(SMALL, stage) for stage in (0, 1))
    assert found == {
        "check the checkpoint": pytest.approx(12 * stored / 1000),
        "compile": 240.0,
        "read slices": pytest.approx(4 * 12 * HELD / 1000),
        "repeat 50 steps, on average": 150.0,
    }


def test_a_measured_start_replaces_the_estimate() -> None:
    assert waiting(RUN, CHIP, Waits(start_seconds=700.0)).start == {"as measured": 700.0}


def test_a_checkpoint_of_v1(tmp_path: Path) -> None:
    """12 bytes of 32 763 876 352 parameters are 393 GB; the embedding is stored once per DP rank.

    MindFormers does not shard the embedding (152 064 x 5 120) over the 8 data-parallel ranks, nor
    norms and biases: per layer 2 x 5 120 + 5 120 + 2 x 1 024. Each of the 8 tensor-parallel ranks
    has complete norms, and an eighth of the biases.
    """
    job = recipe_training("v1_sft", "v1_dp8_tp8_pp2", tmp_path)
    embedding = 152_064 * 5_120
    biases, norms = 64 * (5_120 + 2 * 1_024), 64 * 2 * 5_120 + 5_120
    matrices = 32_763_876_352 - embedding - biases - norms
    stored = matrices + 8 * (embedding + biases + 8 * norms)
    assert saves.checkpoint_bytes(job) == 12 * stored
    assert f"{12 * 32_763_876_352 / 1e9:.0f}" == "393"
