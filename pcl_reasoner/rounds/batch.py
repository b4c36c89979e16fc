"""From a round's graded responses to its packed rows, and to the figures of the round.

    problem "5c18…": rewards 1 0 1 1           advantages 0.58 -1.73 0.58 0.58   4 segments
    problem "9f0c…": rewards 1 1 1 1           advantages 0 0 0 0                no segment

The loss is a mean over all answered responses, here 8, whether they have a segment or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.rewards import group_advantages
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.inference.dialogue import Prompt
from pcl_reasoner.inference.response_log import FAILED, LOG_PROBS
from pcl_reasoner.pack.tokens import IGNORED
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.verifiers.answers import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST = 2
"""Answered responses that a group needs: a single reward cannot be compared."""


@dataclass
class Graded:
    """A response with its verdict.

    Args:
        key: Its problem and index.
        kind: Its problem's kind.
        record: As in inference/response_log.py.
        verdict: What it earned.
        reward: Its reward in training; with ``shuffle_rewards`` it is another response's.
        advantage: Its advantage in its group.
        averaged: Whether the loss is also a mean over this response.
    """

    key: Key
    kind: str
    record: Record
    verdict: Verdict
    reward: float = 0.0
    advantage: float = 0.0
    averaged: bool = False

    @property
    def answered(self) -> bool:
        """False if the request failed, or the response could not be graded."""
        failed = self.record["finish_reason"] in FAILED or self.verdict.outcome in FAILED
        return not failed and bool(self.record["token_ids"])

    @property
    def overlong(self) -> bool:
        """True if the response reached its token limit."""
        return bool(self.record["finish_reason"] == "length")

    @property
    def earned(self) -> float:
        """The reward of the response itself; an overlong response earns none."""
        return 0.0 if self.overlong else self.verdict.reward


def compare(group: Sequence[Graded], config: RlConfig) -> bool:
    """Set the advantages of a problem's responses.

    Args:
        group: All responses to one problem.
        config: Uses ``overlong`` and ``normalise``.

    Returns:
        False if the group has too few answered responses: it is left out.
    """
    answered = [one for one in group if one.answered]
    if len(answered) < _LEAST:
        return False
    rewards = np.array([one.reward for one in answered], np.float64)
    overlong = np.array([one.overlong for one in answered])
    found, averaged = group_advantages(rewards, overlong, config.overlong, config.normalise)
    for one, advantage, counts in zip(answered, found.tolist(), averaged.tolist(), strict=True):
        one.advantage, one.averaged = advantage, counts
    return True


def exchanged(rewards: Mapping[Key, float], seed: int, number: int) -> dict[Key, float]:
    """Exchange the rewards of a round's responses at random: a control experiment."""
    keys = sorted(rewards)
    order = np.random.default_rng([seed, number]).permutation(len(keys))
    return {key: rewards[keys[index]] for key, index in zip(keys, order.tolist(), strict=True)}


def trained_of(group: Sequence[Graded], skip_without_advantage: bool) -> list[Graded]:
    """Return the responses of a group that training computes."""
    return [
        one
        for one in group
        if one.averaged and (one.advantage != 0.0 or not skip_without_advantage)
    ]


def segments_of(trained: Sequence[Graded], prompt: Prompt) -> pa.Table:
    """Return a table with the columns of tokenized samples, and the sampler's log-probs.

    The prompt's and the response's tokens are exactly those of sampling.

    Args:
        trained: Responses to one problem.
        prompt: The problem's prompt.
    """
    import pyarrow as pa

    from pcl_reasoner.core.schemas import OLD_LOG_PROBS, SEGMENTS

    rows = [_segment(one, prompt.ids) for one in trained]
    return pa.Table.from_pylist(rows, schema=pa.unify_schemas([SEGMENTS, OLD_LOG_PROBS]))


def _segment(one: Graded, prompt: list[int]) -> dict[str, Any]:
    tokens, log_probs = one.record["token_ids"], one.record[LOG_PROBS]
    return {
        "problem_id": one.key[0],
        "sample_index": one.key[1],
        "input_ids": prompt + tokens,
        "labels": [IGNORED] * len(prompt) + tokens,
        "length": len(prompt) + len(tokens),
        "reward": one.reward,
        "pass_rate": None,
        "advantage": one.advantage,
        "old_log_probs": [0.0] * len(prompt) + log_probs,
        "old_log_probs_mean": sum(log_probs) / len(log_probs),
    }


@dataclass
class Figures:
    """The figures of a round, added up group by group."""

    responses: int = 0
    failed: int = 0
    groups_left_out: int = 0
    overlong: int = 0
    stopped: int = 0
    no_advantage: int = 0
    """Responses over which the loss is a mean, and which have no advantage."""
    segments: int = 0
    """Responses over which the loss is a mean."""
    trained: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    kinds: dict[str, dict[str, float]] = field(default_factory=dict)
    """Kind -> answered responses, sum of their rewards, and correct ones."""

    def add(self, group: Sequence[Graded], compared: bool, trained: Sequence[Graded]) -> None:
        """Add the responses to one problem.

        Args:
            group: All of them.
            compared: False if they are left out.
            trained: Those that training computes.
        """
        answered = [one for one in group if one.answered]
        self.responses += len(group)
        self.failed += len(group) - len(answered)
        self.groups_left_out += not compared
        self.overlong += sum(one.overlong for one in answered)
        self.stopped += sum(one.record["finish_reason"] == "stop" for one in answered)
        self.no_advantage += sum(one.averaged and one.advantage == 0.0 for one in group)
        self.segments += sum(one.averaged for one in group)
        self.trained += len(trained)
        self.tokens += sum(one.record["n_tokens"] for one in answered)
        self.trained_tokens += sum(one.record["n_tokens"] for one in trained)
        empty = {"responses": 0.0, "reward": 0.0, "correct": 0.0}
        kind = self.kinds.setdefault(group[0].kind, empty)
        kind["responses"] += len(answered)
        kind["reward"] += sum(one.earned for one in answered)
        right = [one for one in answered if one.verdict.outcome == "correct"]
        kind["correct"] += sum(not one.overlong for one in right)

    @property
    def mean_reward(self) -> float:
        """Mean reward of the answered responses of all kinds."""
        answered = sum(kind["responses"] for kind in self.kinds.values())
        return sum(kind["reward"] for kind in self.kinds.values()) / max(answered, 1)


def visit_of(group: Sequence[Graded], number: int) -> dict[str, Any]:
    """Return the row of visits.parquet for the responses to one problem of a round."""
    answered = [one for one in group if one.answered]
    rewards = [one.earned for one in answered]
    return {
        "problem_id": group[0].key[0],
        "kind": group[0].kind,
        "round": number,
        "n": len(answered),
        "reward_mean": sum(rewards) / len(rewards) if rewards else 0.0,
        "all_correct": all(reward == 1.0 for reward in rewards),
        "overlong": sum(one.overlong for one in answered),
    }


def response_rows(group: Sequence[Graded], number: int) -> list[dict[str, Any]]:
    """Return a row of the round's responses for each response to one problem."""
    return [
        {
            **one.record,
            "round": number,
            "kind": one.kind,
            "verdict": one.verdict.outcome,
            "reward": one.earned if one.answered else None,
            "score": one.verdict.score,
            "detail": one.verdict.detail,
            "advantage": one.advantage if one.averaged else None,
        }
        for one in group
    ]
