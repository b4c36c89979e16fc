"""One round from given responses: its files by hand, and what a killed run left of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from reward_model import write
from rl_helpers import RIGHT, WRONG, Given, Reply, Row, graders_of, pool_of, rl_config

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.rounds.batch import Figures
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import published_rounds, round_folder
from pcl_reasoner.rounds.making import is_published, make_round, read_figures
from pcl_reasoner.rounds.pool import Pool
from pcl_reasoner.verifiers.logs import SCORE_LOG

PAD = 9
REPLIES: dict[Key, Reply] = {
    ("a", 0): Reply(RIGHT, [11, 12], log_probs=[-0.5, -0.25]),
    ("a", 1): Reply(WRONG, [13, 14, 15]),
    ("a", 2): Reply(WRONG, [16] * 5, "length"),
    ("b", 0): Reply(RIGHT, [17, 18]),
    ("b", 1): Reply(RIGHT, [19, 20]),
    ("b", 2): Reply("", [], "error"),
}


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return pool_of(tmp_path / "pool", [Row("a"), Row("b")], {"a": [5, 6, 7], "b": [5]})


def make(
    folder: Path, pool: Pool, sampler: Given, number: int = 0, **changes: Any
) -> tuple[Figures, RlConfig]:
    config = rl_config(**changes)
    rounds = folder / "rounds"
    rounds.mkdir(parents=True, exist_ok=True)
    with graders_of(config, {"math"}, folder) as graders:
        return make_round(number, rounds, config, pool, sampler, graders, "w", PAD), config


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_files_of_a_round_by_hand(tmp_path: Path, pool: Pool) -> None:
    figures, _ = make(tmp_path, pool, Given(REPLIES))
    folder = round_folder(tmp_path / "rounds", 0)
    assert sorted(path.name for path in folder.iterdir()) == [
        "figures.json",
        "queries.json",
        "responses.parquet",
        "round.json",
        "rows",
    ]
    queries = json.loads((folder / "queries.json").read_text())
    assert queries == {"round": 0, "weights": "w", "problems": ["a", "b"]}
    # a: 1 0 0 with an overlong one, so its first two are trained; b: equal rewards.
    (published,) = published_rounds(tmp_path / "rounds")
    assert (published.segments, published.rows, published.micro_steps) == (5, 1, 1)
    table = pq.read_table(folder / "responses.parquet")
    found = table.select(["problem_id", "sample_index", "verdict", "reward", "advantage"])
    root = 2**0.5
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("a", 0, "correct", 1.0, pytest.approx(root)),
        ("a", 1, "incorrect", 0.0, pytest.approx(-1 / root)),
        ("a", 2, "incorrect", 0.0, 0.0),
        ("b", 0, "correct", 1.0, 0.0),
        ("b", 1, "correct", 1.0, 0.0),
        ("b", 2, "error", None, None),
    ]
    kept = read_figures(tmp_path / "rounds", 0)
    assert kept["mean_reward"] == pytest.approx(3 / 5) == figures.mean_reward
    assert (kept["trained"], kept["no_advantage"], kept["failed"], kept["overlong"]) == (2, 3, 1, 1)
    assert [visit["all_correct"] for visit in kept["visits"]] == [False, True]


def test_the_rows_of_a_round_by_hand(tmp_path: Path, pool: Pool) -> None:
    make(tmp_path, pool, Given(REPLIES))
    (row,) = read_arrow_folder(round_folder(tmp_path / "rounds", 0) / "rows").to_pylist()
    first = row["sample_indices"][0]  # packing draws the order of a row's segments
    ids = {0: [5, 6, 7, 11, 12], 1: [5, 6, 7, 13, 14, 15]}
    order = [first, 1 - first]
    ends = [len(ids[order[0]]), 11]
    assert row["actual_seq_len"] == ends
    assert row["input_ids"] == [*ids[order[0]], *ids[order[1]], *[PAD] * 21]
    begin = 0 if first == 0 else 6
    assert row["old_log_probs"][begin : begin + 5] == [0.0, 0.0, 0.0, -0.5, -0.25]
    advantages = dict(zip(order, row["advantages"], strict=True))
    assert advantages == {0: pytest.approx(2**0.5), 1: pytest.approx(-(2**-0.5))}


def test_without_skipping_all_averaged_responses_have_segments(tmp_path: Path, pool: Pool) -> None:
    make(tmp_path, pool, Given(REPLIES), skip_without_advantage=False, max_segments=2)
    (published,) = published_rounds(tmp_path / "rounds")
    # 5, 6, 8, 3 and 3 tokens, at most two segments per row.
    assert (published.segments, published.rows, published.micro_steps) == (5, 3, 3)
    rows = read_arrow_folder(round_folder(tmp_path / "rounds", 0) / "rows").to_pylist()
    keys = [
        key for row in rows for key in zip(row["problem_ids"], row["sample_indices"], strict=True)
    ]
    assert sorted(keys) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


def test_a_round_whose_rewards_are_equal_has_no_rows_and_one_micro_step(
    tmp_path: Path, pool: Pool
) -> None:
    equal = {key: Reply(WRONG, [11, 12]) for key in REPLIES}
    figures, _ = make(tmp_path, pool, Given(equal))
    (published,) = published_rounds(tmp_path / "rounds")
    assert (published.segments, published.rows, published.micro_steps) == (6, 0, 1)
    assert (figures.no_advantage, figures.trained) == (6, 0)
    assert not (round_folder(tmp_path / "rounds", 0) / "rows").exists()


def test_a_group_that_is_left_out_counts_nowhere(tmp_path: Path, pool: Pool) -> None:
    failed = {("b", index): Reply("", [], "timeout") for index in (1, 2)}
    figures, _ = make(tmp_path, pool, Given(REPLIES | failed))
    (published,) = published_rounds(tmp_path / "rounds")
    assert (figures.groups_left_out, figures.failed, published.segments) == (1, 2, 3)


def test_every_round_has_streams_of_its_own(tmp_path: Path, pool: Pool) -> None:
    seeds = []
    for number in range(3):
        sampler = Given(REPLIES)
        make(tmp_path, pool, sampler, number)
        seeds.append(sampler.settings[0].seed)
    # 6 responses per round; a probe has the seed itself.
    assert seeds == [5 + 6, 5 + 12, 5 + 18]


def test_a_killed_round_asks_what_is_missing_and_has_the_same_bytes(
    tmp_path: Path, pool: Pool
) -> None:
    make(tmp_path / "whole", pool, Given(REPLIES))
    killed = tmp_path / "killed"
    first = Given({key: one for key, one in REPLIES.items() if key < ("b", 1)})
    with pytest.raises(KeyError):
        make(killed, pool, first)
    folder = round_folder(killed / "rounds", 0)
    log = folder / "responses.partial.jsonl"
    log.write_bytes(log.read_bytes() + b'{"problem_id": "b", "sample_ind')
    (folder / "rows").mkdir()
    (folder / "rows" / "data-00000-of-00001.arrow").write_bytes(b"half")
    assert not is_published(killed / "rounds", 0)
    again = Given(REPLIES)
    make(killed, pool, again)
    assert again.asked == [("b", 1), ("b", 2)]
    assert contents(killed / "rounds") == contents(tmp_path / "whole" / "rounds")


def test_a_published_round_loses_only_its_logs(tmp_path: Path, pool: Pool) -> None:
    make(tmp_path, pool, Given(REPLIES))
    before = contents(tmp_path / "rounds")
    (round_folder(tmp_path / "rounds", 0) / "responses.partial.jsonl").write_text("{}\n")
    assert is_published(tmp_path / "rounds", 0)
    assert contents(tmp_path / "rounds") == before


def test_exchanged_rewards_train_and_true_ones_are_reported(tmp_path: Path, pool: Pool) -> None:
    """Over several rounds: some exchange moves a reward to another problem."""
    moved = []
    for number in range(4):
        figures, config = make(tmp_path, pool, Given(REPLIES), number, shuffle_rewards=True)
        assert config.shuffle_rewards
        assert figures.mean_reward == pytest.approx(3 / 5)
        table = pq.read_table(round_folder(tmp_path / "rounds", number) / "responses.parquet")
        assert table["reward"].to_pylist() == [1.0, 0.0, 0.0, 1.0, 1.0, None]
        moved.append(tuple(table["advantage"].to_pylist()))
    plain, _ = make(tmp_path / "plain", pool, Given(REPLIES))
    assert plain.mean_reward == pytest.approx(3 / 5)
    file = round_folder(tmp_path / "plain" / "rounds", 0) / "responses.parquet"
    assert {*moved} - {tuple(pq.read_table(file)["advantage"].to_pylist())}


def test_a_reward_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """As a broken reward model would score."""
    rows = [Row("t", "Greet Ben.", "chat", "")]
    pool = pool_of(tmp_path / "pool", rows, {"t": [5]})
    config = rl_config(queries=1, n=2, grade={"reward_model": {"engine": "local"}})
    model = write(tmp_path / "reward")
    folder = round_folder(tmp_path / "rounds", 0)
    folder.mkdir(parents=True)
    lines = [{"problem_id": "t", "sample_index": i, "score": float("nan")} for i in (0, 1)]
    queries = {"round": 0, "weights": "w", "problems": ["t"]}
    (folder / "queries.json").write_text(json.dumps(queries) + "\n")
    (folder / SCORE_LOG).write_text("".join(json.dumps(one) + "\n" for one in lines))
    replies = {("t", index): Reply("<think>so</think>Good day.", [11]) for index in (0, 1)}
    with (
        graders_of(config, {"chat"}, tmp_path, model) as graders,
        pytest.raises(StageError, match="round 0, response 0 of problem t: .* got nan"),
    ):
        make_round(0, tmp_path / "rounds", config, pool, Given(replies), graders, "w", PAD)
    assert not (folder / "round.json").exists()
