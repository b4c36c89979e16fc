"""Rounds of on-policy training by MindFormers' Trainer: by hand, in micro-steps, killed, on ranks.

About 95 s on two cores: seven runs of the Trainer, one of them killed and taken up again.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from paths import HELPERS
from rl_helpers import rl_config
from round_training import (
    ByHand,
    Response,
    Told,
    checkpoint_after,
    largest_gap,
    train_rounds,
    weights_after,
    with_rows,
    write_round,
)
from train_helpers import write_policy

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder
from pcl_reasoner.rl.render import ROUNDS
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import published_rounds, round_folder
from pcl_reasoner.train.stopping import read_steps

pytestmark = pytest.mark.slow

HAND = Told(
    [
        Response("a", 2, right=True),
        Response("a", 3, right=False),
        Response("a", 5, right=False),
        Response("b", 4, right=True),
        Response("b", 2, right=True),
        Response("b", 5, right=False),
    ]
)
SEVEN = Told(
    [
        Response("a", 19, right=True),
        Response("a", 24, right=False),
        Response("a", 22, right=False),
        Response("b", 20, right=True),
        Response("b", 25, right=False),
        Response("b", 26, right=True, reason="length"),
        Response("c", 24, right=True),
        Response("c", 18, right=False),
        Response("c", 5, right=False, reason="error"),
        Response("d", 20, right=True),
        Response("d", 21, right=True),
        Response("d", 19, right=True),
    ],
    seed=1,
)
"""Seven responses have an advantage, and each of them needs a row of its own."""
EQUAL = Told([Response("a", length, right=False) for length in (3, 4, 5)], seed=2)
SMALL = Told(
    [
        Response("c", 5, right=True),
        Response("c", 9, right=False),
        Response("c", 3, right=True),
    ],
    seed=4,
)
ROUNDS_TOLD = [HAND, SEVEN, EQUAL, replace(SEVEN, seed=3), SMALL]
OVERFLOW = 3
"""The round whose first row's advantages are made so large that its gradients overflow."""
TINY = 1e-4
"""AdamW's epsilon here. With 1e-8 a gradient of 1e-9, whose sign rounding decides, would move a
weight by the whole learning rate."""
CONFIG = rl_config(
    queries=4,
    max_rounds=len(ROUNDS_TOLD),
    max_new_tokens=26,
    learning_rate=5e-4,
    learning_rate_end=1e-4,
    schedule="cosine",
    weight_decay=0.1,
    eps=TINY,
    checkpoint_rounds=1,
    keep_checkpoints=9,
)


@dataclass(frozen=True)
class Made:
    """A run of the Trainer over all rounds."""

    folder: Path
    config: RlConfig

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        return read_steps(self.folder / "metrics.jsonl")

    @property
    def micro_steps(self) -> list[int]:
        return [one.micro_steps for one in published_rounds(self.folder / ROUNDS)]

    def weights(self, number: int) -> dict[str, np.ndarray]:
        return weights_after(self.folder, number)

    def checkpoint(self, number: int) -> dict[str, np.ndarray]:
        return checkpoint_after(self.folder, sum(self.micro_steps[: number + 1]))


def multiply_advantages(folder: Path, factor: float) -> None:
    """Write a round's rows again, with other advantages in the first row."""
    table = read_arrow_folder(folder)
    first, *others = table["advantages"].to_pylist()
    changed = [[factor * one for one in first], *others]
    place = table.column_names.index("advantages")
    table = table.set_column(
        place, table.schema.field(place), pa.array(changed, table.schema.field(place).type)
    )
    shutil.rmtree(folder)
    folder.mkdir()
    write_arrow_folder(folder, table.schema, table.to_batches())


def write_rounds(folder: Path, config: RlConfig, policy: Path) -> None:
    sampled = ByHand(policy, config).sampled(HAND)
    for number, told in enumerate(ROUNDS_TOLD):
        write_round(folder, number, told, config, sampled if told is HAND else None)
    multiply_advantages(round_folder(folder / ROUNDS, OVERFLOW) / "rows", 1e25)


def make(folder: Path, config: RlConfig, policy: Path, **placement: Any) -> Made:
    write_rounds(folder, config, policy)
    train_rounds(folder, config, policy, len(ROUNDS_TOLD), **placement)
    return Made(folder, config)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy") / "policy")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, policy: Path) -> dict[int, Made]:
    """Rows per micro-step -> the run."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        rows: make(folder / f"{rows}", with_rows(CONFIG, rows), policy) for rows in (1, 2, 4, 7)
    }


def test_every_round_is_the_update_by_hand(runs: dict[int, Made], policy: Path) -> None:
    """Advantages, N, gradients, clipping, schedule and AdamW; one round is skipped."""
    by_hand, made = ByHand(policy, CONFIG), runs[7]
    for number, told in enumerate(ROUNDS_TOLD):
        before = by_hand.weights()
        rate = by_hand.rate
        if number != OVERFLOW:
            by_hand.update(told)
            record = made.records[number]
            assert record["loss"] == pytest.approx(by_hand.loss, abs=1e-6)
            assert record["grad_norm"] == pytest.approx(by_hand.norm, rel=1e-5)
            assert largest_gap(by_hand.weights(), before) > 1e-4
        assert made.records[number]["learning_rate"] == pytest.approx(rate, rel=1e-6)
        assert largest_gap(made.weights(number), by_hand.weights()) < 1e-6, number
    # One norm was clipped, one was not.
    norms = [record["grad_norm"] for record in made.records]
    assert norms[0] > CONFIG.clip_grad and norms[2] == 0.0


EQUAL_FIGURES = ("step", "tokens", "correct_count", "incorrect_count", "overflow", "learning_rate")
CLOSE_FIGURES = (
    "loss",
    "grad_norm",
    "mismatch",
    "mismatch_abs",
    "mismatch_max",
    "correct_weight",
    "incorrect_m",
    "incorrect_entropy",
)


def assert_alike(ours: dict[str, Any], theirs: dict[str, Any], relative: float) -> None:
    """Two lines of metrics are of the same round."""
    for key in EQUAL_FIGURES:
        assert ours[key] == theirs[key], key
    for key in CLOSE_FIGURES:
        close = theirs[key] and pytest.approx(theirs[key], rel=relative, abs=1e-6)
        assert ours[key] == close, key


def test_micro_steps_make_the_same_update(runs: dict[int, Made]) -> None:
    """Of 7 rows: 1 micro-step, 2 with 4 and 3 rows, 4 with 2, 2, 2 and 1, and 7."""
    assert [runs[rows].micro_steps[1] for rows in (7, 4, 2, 1)] == [1, 2, 4, 7]
    for rows in (4, 2, 1):
        for number in range(len(ROUNDS_TOLD)):
            gap = largest_gap(runs[rows].weights(number), runs[7].weights(number))
            assert gap < 2e-6, (rows, number)
        for ours, whole in zip(runs[rows].records, runs[7].records, strict=True):
            assert_alike(ours, whole, 1e-5)


def test_a_round_has_one_line(runs: dict[int, Made]) -> None:
    for made in runs.values():
        assert [record["step"] for record in made.records] == [1, 2, 3, 4, 5]
        trained = [record["correct_count"] + record["incorrect_count"] for record in made.records]
        assert trained == [6, 7, 0, 7, 3]
    # Of HAND, a: 2, 3 and 5 tokens, and b: 4, 2 and 5.
    assert runs[1].records[0]["tokens"] == 21


def test_the_mismatch_is_that_of_the_sampler(runs: dict[int, Made]) -> None:
    first, second, empty = runs[1].records[:3]
    assert first["mismatch_max"] < 1e-5
    assert abs(first["mismatch"]) <= first["mismatch_abs"] <= first["mismatch_max"]
    # The others are said to have been drawn with −1 per token.
    assert second["mismatch_abs"] > 1
    assert (empty["mismatch"], empty["mismatch_abs"], empty["mismatch_max"]) == (None,) * 3


def test_moments_and_the_optimizer_step_advance_once_per_round(runs: dict[int, Made]) -> None:
    low, high = CONFIG.betas
    for made in runs.values():
        steps = [int(made.checkpoint(number)["global_step"]) for number in range(5)]
        assert steps == [1, 2, 3, 3, 4]  # the overflow is no step
        done = [int(made.checkpoint(number)["step_num"]) for number in range(5)]
        assert done == np.cumsum(made.micro_steps).tolist()
        second, third = made.checkpoint(1), made.checkpoint(2)
        assert {name for name in second if "round_gradients" in name} == set()
        for name in second:
            # The round without rows has a gradient of zero: moments only decay.
            if name.startswith("exp_avg_sq."):
                assert third[name] == pytest.approx(high * second[name], rel=1e-6)
            elif name.startswith("exp_avg."):
                assert third[name] == pytest.approx(low * second[name], rel=1e-6)


def test_an_overflow_skips_the_round_and_clears_the_totals(runs: dict[int, Made]) -> None:
    for made in runs.values():
        assert [record["overflow"] for record in made.records] == [0, 0, 0, 1, 0]
        assert made.records[OVERFLOW]["grad_norm"] is None
        before, after = (made.checkpoint(number) for number in (OVERFLOW - 1, OVERFLOW))
        moved = {name for name in before if (before[name] != after[name]).any()}
        others = {"step_num", "epoch_num", "step_figures"}
        assert {name for name in moved if not name.startswith("mismatch.")} <= others
        assert moved >= {"step_num"}
        assert largest_gap(made.weights(OVERFLOW - 1), made.weights(OVERFLOW)) == 0.0


def test_responses_without_an_advantage_change_no_weight(
    runs: dict[int, Made], policy: Path, tmp_path: Path
) -> None:
    whole = make(tmp_path, with_rows(CONFIG, 7, skip_without_advantage=False), policy)
    assert whole.micro_steps[1] == 2  # 11 rows
    assert whole.records[1]["tokens"] > runs[7].records[1]["tokens"]
    assert whole.records[1]["no_advantage"] == pytest.approx(4 / 11)
    for number in range(len(ROUNDS_TOLD)):
        assert largest_gap(whole.weights(number), runs[7].weights(number)) < 1e-6, number


def contents(folder: Path) -> dict[str, bytes]:
    """All weights, and the metrics."""
    files = [
        *sorted((folder / "work" / "weights").rglob("*.safetensors")),
        folder / "metrics.jsonl",
    ]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_trainer_that_is_killed_between_micro_steps_makes_each_round_once(
    runs: dict[int, Made], policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the second micro-step of the round that has four."""
    config = runs[2].config
    write_rounds(tmp_path, config, policy)
    first = runs[2].micro_steps[0]
    point = {
        "module": "pcl_reasoner.trainer.round_callbacks",
        "call": "PclRounds.on_train_step_end",
        "number": first + 2,
    }
    path = f"{HELPERS / 'killing'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("PCLR_TEST_KILL", json.dumps(point))
        with pytest.raises(StageError, match="SIGKILL"):
            train_rounds(tmp_path, config, policy, len(ROUNDS_TOLD))
    assert [record["step"] for record in read_steps(tmp_path / "metrics.jsonl")] == [1]
    checkpoints = sorted((tmp_path / "work" / "checkpoint" / "rank_0").glob("*.safetensors"))
    assert [one.name for one in checkpoints] == [f"policy_rank_0-1_{first}.safetensors"]
    kept = (tmp_path / "work" / "weights" / "00000" / "rank_0").stat().st_mtime_ns
    train_rounds(tmp_path, config, policy, len(ROUNDS_TOLD))
    assert contents(tmp_path) == contents(runs[2].folder)
    # Round 0 was not made again.
    assert (tmp_path / "work" / "weights" / "00000" / "rank_0").stat().st_mtime_ns == kept


def test_two_data_parallel_ranks_are_one_process(
    runs: dict[int, Made], policy: Path, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = make(tmp_path, with_rows(CONFIG, 2, data_parallel=2), policy, master_port=port)
    for number in range(len(ROUNDS_TOLD)):
        assert largest_gap(both.weights(number), runs[2].weights(number)) < 1e-5, number
        other = weights_after(tmp_path, number, rank=1)
        assert largest_gap(both.weights(number), other) == 0.0
    for ours, alone in zip(both.records, runs[2].records, strict=True):
        assert_alike(ours, alone, 1e-4)
