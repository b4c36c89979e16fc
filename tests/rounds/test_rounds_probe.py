"""A line of probe.jsonl by hand, and what a killed probe leaves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from rl_helpers import RIGHT, WRONG, Given, Reply, Row, graders_of, pool_of, rl_config

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.rounds.making import RESPONSE_LOG
from pcl_reasoner.rounds.pool import Pool
from pcl_reasoner.rounds.probe import probe, read_probes

LOWER = {"instructions": [{"id": "punctuation:no_comma", "kwargs": {}}]}
TWO = {"instructions": [*LOWER["instructions"], {"id": "startend:quotation", "kwargs": {}}]}
ROWS = [Row("a"), Row("b"), Row("c", "Name two.", "instruction", "", TWO)]
CONFIG = rl_config(probe={"n": 2, "every": 5}, grade={"instruction_reward": "share"})
REPLIES: dict[Key, Reply] = {
    ("a", 0): Reply(RIGHT, [11, 12]),
    ("a", 1): Reply(RIGHT, [11, 12, 13], "length"),  # right, but cut off
    ("b", 0): Reply(RIGHT, [11]),
    ("b", 1): Reply("", [], "error"),
    ("c", 0): Reply("<think>so</think>dog cat", [11, 12]),  # half of the instructions
    ("c", 1): Reply("<think>so", [11] * 4, "length"),
}


@pytest.fixture
def held_out(tmp_path: Path) -> Pool:
    return pool_of(tmp_path / "held_out", ROWS, {one.name: [5, 6] for one in ROWS})


def ask(output: Path, held_out: Pool, number: int, sampler: Given) -> dict[str, Any]:
    with graders_of(CONFIG, {"math", "instruction"}, output) as graders:
        return probe(number, output, CONFIG, held_out, sampler, graders)


def test_a_line_by_hand(tmp_path: Path, held_out: Pool) -> None:
    sampler = Given(REPLIES)
    line = ask(tmp_path, held_out, 5, sampler)
    # Shares 1/2, 1/2, 1/4: mean 5/12; squares 1/144 (1 + 1 + 4) over 2, and over 3 problems.
    assert line == {
        "round": 5,
        "n": 2,
        "problems": ["a", "b", "c"],
        "kinds": ["math", "math", "instruction"],
        "correct": [1.0, 1.0, 0.5],
        "accuracy": pytest.approx(5 / 12),
        "se": pytest.approx(math.sqrt(6 / 144 / 2 / 3)),
        "mean_length": 2.0,
        "stop_ratio": 0.5,
    }
    assert read_probes(tmp_path / "probe.jsonl") == [line]
    assert not (tmp_path / "probe").exists()


def test_every_probe_has_the_same_streams(tmp_path: Path, held_out: Pool) -> None:
    sampler = Given(REPLIES)
    lines = [ask(tmp_path, held_out, number, sampler) for number in (0, 5)]
    assert [(one.seed, one.n) for one in sampler.settings] == [(CONFIG.seed, 2)] * 2
    assert lines[1] == lines[0] | {"round": 5}
    assert read_probes(tmp_path / "probe.jsonl") == lines


def test_a_killed_probe_asks_what_is_missing(tmp_path: Path, held_out: Pool) -> None:
    whole = ask(tmp_path / "whole", held_out, 5, Given(REPLIES))
    killed = tmp_path / "killed"
    (killed / "probe" / "5").mkdir(parents=True)
    log = killed / "probe" / "5" / RESPONSE_LOG
    first = Given({key: one for key, one in REPLIES.items() if key[0] == "a"})
    with pytest.raises(KeyError):
        ask(killed, held_out, 5, first)
    with log.open("a") as handle:
        handle.write('{"problem_id": "b", "sam')
    again = Given(REPLIES)
    assert ask(killed, held_out, 5, again) == whole
    assert first.asked == [("a", 0), ("a", 1), ("b", 0)]
    assert again.asked == [("b", 0), ("b", 1), ("c", 0), ("c", 1)]


def test_what_an_earlier_probe_left_is_not_used(tmp_path: Path, held_out: Pool) -> None:
    """Its responses were drawn by other weights."""
    with pytest.raises(KeyError):
        ask(tmp_path, held_out, 0, Given({("a", 0): Reply(WRONG, [11])}))
    sampler = Given(REPLIES)
    assert ask(tmp_path, held_out, 5, sampler)["correct"] == [1.0, 1.0, 0.5]
    assert len(sampler.asked) == 6


def test_a_line_that_is_cut_off_is_no_probe(tmp_path: Path) -> None:
    path = tmp_path / "probe.jsonl"
    assert read_probes(path) == []
    path.write_text(json.dumps({"round": 0}) + "\n" + '{"round": 5, "n"')
    assert read_probes(path) == [{"round": 0}]
