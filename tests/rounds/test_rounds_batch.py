"""A round's responses become advantages, segments and figures: all by hand."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
import pytest
from rl_helpers import graded, rl_config

from pcl_reasoner.core import schemas
from pcl_reasoner.inference.dialogue import Prompt
from pcl_reasoner.rounds.batch import (
    Figures,
    Graded,
    compare,
    exchanged,
    response_rows,
    segments_of,
    trained_of,
    visit_of,
)

PROMPT = Prompt("a", [{"role": "user", "content": "?"}], [5, 6, 7])


def group(*rewards: float) -> list[Graded]:
    return [graded(("a", index), reward) for index, reward in enumerate(rewards)]


def advantages(responses: list[Graded]) -> list[float]:
    return [one.advantage for one in responses]


def test_failed_requests_are_in_neither_mean() -> None:
    # 1 0 0 are compared: mean 1/3, deviation sqrt(2)/3.
    responses = [*group(1, 0), graded(("a", 2), 0, 0, "timeout"), graded(("a", 3), 0)]
    responses.append(graded(("a", 4), 0, 0, "error"))
    assert compare(responses, rl_config())
    expected = [2**0.5, -(2**-0.5), 0.0, -(2**-0.5), 0.0]
    assert advantages(responses) == pytest.approx(expected)
    assert [one.averaged for one in responses] == [True, True, False, True, False]


def test_a_response_that_could_not_be_graded_counts_as_failed() -> None:
    responses = [*group(1, 0), graded(("a", 2), 0, outcome="error")]
    assert compare(responses, rl_config(normalise="none"))
    assert advantages(responses) == [0.5, -0.5, 0.0]
    assert [one.answered for one in responses] == [True, True, False]


def test_a_response_without_a_token_counts_as_failed() -> None:
    responses = [*group(1, 0), graded(("a", 2), 0, tokens=0)]
    assert compare(responses, rl_config())
    assert [one.averaged for one in responses] == [True, True, False]


def test_a_group_with_one_answered_response_is_left_out() -> None:
    responses = [graded(("a", 0), 1), graded(("a", 1), 0, 0, "error")]
    assert not compare(responses, rl_config())
    assert advantages(responses) == [0.0, 0.0]
    assert not any(one.averaged for one in responses)


@pytest.mark.parametrize(
    ("rule", "expected", "averaged"),
    [
        # 1 0 0: mean 1/3. Without the last: mean 1/2.
        ("zero", [2 / 3, -1 / 3, 0.0], [True, True, True]),
        ("masked", [0.5, -0.5, 0.0], [True, True, False]),
        ("wrong", [2 / 3, -1 / 3, -1 / 3], [True, True, True]),
    ],
)
def test_overlong_responses(rule: str, expected: list[float], averaged: list[bool]) -> None:
    responses = [*group(1, 0), graded(("a", 2), 0, reason="length")]
    assert compare(responses, rl_config(overlong=rule, normalise="none"))
    assert advantages(responses) == pytest.approx(expected)
    assert [one.averaged for one in responses] == averaged


def test_only_responses_with_an_advantage_are_computed() -> None:
    mixed = [*group(1, 0), graded(("a", 2), 0, reason="length")]
    equal = group(1, 1)
    for responses in (mixed, equal):
        compare(responses, rl_config())
    assert trained_of(mixed, True) == mixed[:2]
    assert trained_of(mixed, False) == mixed
    assert trained_of(equal, True) == []
    assert trained_of(equal, False) == equal
    masked = [*group(1, 0), graded(("a", 2), 0, reason="length")]
    compare(masked, rl_config(overlong="masked"))
    assert trained_of(masked, False) == masked[:2]


def test_a_segment_has_the_tokens_and_log_probs_of_sampling() -> None:
    responses = [graded(("a", 1), 1, 2, log_probs=[-0.5, -0.25]), graded(("a", 4), 0, 1)]
    compare(responses, rl_config())
    table = segments_of(responses, PROMPT)
    first, second = table.to_pylist()
    assert first == {
        "problem_id": "a",
        "sample_index": 1,
        "input_ids": [5, 6, 7, 11, 12],
        "labels": [-100, -100, -100, 11, 12],
        "length": 5,
        "reward": 1.0,
        "pass_rate": None,
        "advantage": 1.0,
        "old_log_probs": [0.0, 0.0, 0.0, -0.5, -0.25],
        "old_log_probs_mean": -0.375,
    }
    assert (second["sample_index"], second["labels"], second["advantage"]) == (
        4,
        [-100, -100, -100, 11],
        -1.0,
    )
    assert table.schema == pa.unify_schemas([schemas.SEGMENTS, schemas.OLD_LOG_PROBS])


def test_figures_of_a_round_by_hand() -> None:
    """A mixed group, one with equal rewards, and one that is left out."""
    config, figures = rl_config(), Figures()
    mixed = [
        graded(("a", 0), 1, 2),
        graded(("a", 1), 0, 3),
        graded(("a", 2), 1, 4, "length"),
        graded(("a", 3), 0, 0, "error"),
    ]
    equal = [graded(("b", index), 1, 5, kind="code") for index in range(3)]
    left = [graded(("c", 0), 0.25, 7, outcome="passed_some"), graded(("c", 1), 0, 0, "timeout")]
    for responses in (mixed, equal, left):
        compared = compare(responses, config)
        trained = trained_of(responses, True) if compared else []
        figures.add(responses, compared, trained)
    assert figures == Figures(
        responses=9,
        failed=2,
        groups_left_out=1,
        overlong=1,
        stopped=6,
        no_advantage=4,  # the overlong one and the three of b
        segments=6,
        trained=2,
        tokens=2 + 3 + 4 + 15 + 7,
        trained_tokens=5,
        kinds={
            "math": {"responses": 4, "reward": 1.25, "correct": 1},
            "code": {"responses": 3, "reward": 3, "correct": 3},
        },
    )
    assert figures.mean_reward == pytest.approx(4.25 / 7)
    assert Figures().mean_reward == 0.0


def test_a_visit_is_of_answered_responses() -> None:
    responses = [graded(("a", 0), 1), graded(("a", 1), 1, reason="length")]
    responses.append(graded(("a", 2), 0, 0, "error"))
    assert visit_of(responses, 17) == {
        "problem_id": "a",
        "kind": "math",
        "round": 17,
        "n": 2,
        "reward_mean": 0.5,  # an overlong response earns nothing, though its answer is right
        "all_correct": False,
        "overlong": 1,
    }
    some = visit_of([*group(1, 0.5)], 0)
    assert (some["reward_mean"], some["all_correct"], some["overlong"]) == (0.75, False, 0)
    assert visit_of([graded(("a", 0), 0, 0, "error")], 0)["n"] == 0


def test_rows_of_responses_say_what_counted() -> None:
    responses = [*group(1, 0), graded(("a", 2), 0, 0, "error"), graded(("a", 3), 1, 2, "length")]
    compare(responses, rl_config(overlong="masked"))
    rows = response_rows(responses, 4)
    kept = [(one["reward"], one["advantage"], one["verdict"], one["round"]) for one in rows]
    assert kept == [
        (1.0, 1.0, "correct", 4),
        (0.0, -1.0, "incorrect", 4),
        (None, None, "incorrect", 4),
        (0.0, None, "correct", 4),  # overlong
    ]
    schema = pa.unify_schemas([schemas.RESPONSES, schemas.ROUND_RESPONSES])
    table = pa.Table.from_pylist(rows, schema=schema)
    assert table["sampled_log_probs"].to_pylist() == [[-1.0, -1.0]] * 2 + [[], [-1.0, -1.0]]


def test_exchanged_rewards_are_the_same_rewards_elsewhere() -> None:
    rewards = {(f"p{index:02d}", 0): index / 40 for index in range(40)}
    moved = exchanged(rewards, seed=3, number=7)
    assert Counter(moved.values()) == Counter(rewards.values())
    assert moved.keys() == rewards.keys()
    # A random exchange leaves one of 40 in its place on average.
    assert sum(moved[key] != reward for key, reward in rewards.items()) > 30
    assert moved == exchanged(dict(reversed(rewards.items())), seed=3, number=7)
    assert moved != exchanged(rewards, seed=3, number=8)
    assert moved != exchanged(rewards, seed=4, number=7)


def test_an_exchanged_reward_decides_advantages_and_leaves_the_verdict() -> None:
    responses = group(1, 0)
    responses[0].reward, responses[1].reward = 0.0, 1.0
    compare(responses, rl_config())
    assert advantages(responses) == [-1.0, 1.0]
    assert [one["reward"] for one in response_rows(responses, 0)] == [1.0, 0.0]
    assert not math.isnan(sum(advantages(responses)))
