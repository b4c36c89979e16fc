"""Rounds of given responses, trained by MindFormers' Trainer and once more by hand in float64.

The hand's side shares nothing with the package: advantages, means, clipping and AdamW are written
down here, and gradients are PyTorch's of transformers' model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rl_helpers import RIGHT, WRONG, Given, Reply, Row, graders_of, pool_of
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.rl.render import ROUNDS, WEIGHTS
from pcl_reasoner.rl.training import write_round_yaml
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import slices_file, write_end
from pcl_reasoner.rounds.making import make_round
from pcl_reasoner.train.render import WORK
from pcl_reasoner.train.session import run_training, starting_paths
from pcl_reasoner.weights.names import mindformers_name


@dataclass(frozen=True)
class Response:
    """A response of a round.

    Args:
        problem: Its problem.
        tokens: Their number.
        right: Whether its answer is.
        reason: Its finish reason.
    """

    problem: str
    tokens: int
    right: bool
    reason: str = "stop"


PROMPTS = {"a": [5, 6, 7], "b": [8], "c": [9, 10], "d": [11, 12, 13, 14]}


@dataclass(frozen=True)
class Told:
    """A round whose responses are given: 3 per problem, in the order of their indices."""

    responses: Sequence[Response]
    seed: int = 0

    @property
    def problems(self) -> list[str]:
        return sorted({one.problem for one in self.responses})

    def tokens(self) -> list[list[int]]:
        """The ids of each response; drawn, so that no two are alike."""
        rng = np.random.default_rng([self.seed, 17])
        return [rng.integers(15, 270, one.tokens).tolist() for one in self.responses]

    def replies(self, log_probs: Sequence[Sequence[float] | None]) -> dict[Any, Reply]:
        seen: dict[str, int] = {}
        found = {}
        for one, ids, values in zip(self.responses, self.tokens(), log_probs, strict=True):
            index = seen.setdefault(one.problem, 0)
            seen[one.problem] += 1
            text = RIGHT if one.right else WRONG
            failed = one.reason == "error"
            found[one.problem, index] = Reply(
                "" if failed else text, [] if failed else ids, one.reason, values
            )
        return found


def write_round(
    folder: Path,
    number: int,
    told: Told,
    config: RlConfig,
    log_probs: Sequence[Sequence[float] | None] | None = None,
) -> None:
    """Make and publish the round as the stage does, from these responses."""
    rounds = folder / ROUNDS
    rounds.mkdir(parents=True, exist_ok=True)
    names = told.problems
    rows = [Row(name) for name in names]
    pool = pool_of(folder / "pool", rows, {name: PROMPTS[name] for name in names})
    sampler = Given(told.replies(log_probs or [None] * len(told.responses)))
    of_round = config.model_copy(update={"queries": len(names)})
    with graders_of(of_round, {"math"}, folder / "graders") as graders:
        make_round(number, rounds, of_round, pool, sampler, graders, "w", 0)


def train_rounds(
    folder: Path, config: RlConfig, policy: Path, count: int, **placement: Any
) -> None:
    """Train on the published rounds, from the last checkpoint or the policy."""
    write_end(folder / ROUNDS, count)
    training = config.training
    start, _ = starting_paths(training, policy, folder / WORK, print)
    write_round_yaml(config, policy, folder, start)
    context = StageContext("rl", folder / "quarantined.jsonl", Placement(**placement))
    inputs = [policy, folder / ROUNDS]
    run_training(training, inputs, folder, config.max_rounds, lambda: None, context)


def weights_after(folder: Path, number: int, rank: int = 0) -> dict[str, np.ndarray]:
    """A rank's weights after a round's update, by MindFormers' names."""
    return load_file(slices_file(folder / WEIGHTS, number, rank))


def checkpoint_after(folder: Path, micro_steps: int) -> dict[str, np.ndarray]:
    """MindFormers' checkpoint after that many micro-steps, with the optimizer's state."""
    return load_file(
        folder / WORK / "checkpoint" / "rank_0" / f"policy_rank_0-1_{micro_steps}.safetensors"
    )


def largest_gap(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    """The largest absolute difference of two models' weights."""
    assert ours.keys() == theirs.keys()
    return max(float(np.abs(ours[name] - theirs[name]).max()) for name in ours)


class ByHand:
    """GRPO's update in float64: gradients by PyTorch, everything else written down.

    Args:
        policy: The weights to start from.
        config: Uses the settings of AdamW, ``clip_grad``, ``overlong`` and ``normalise``.
    """

    def __init__(self, policy: Path, config: RlConfig) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(policy, torch_dtype=torch.float64).eval()
        self.config, self.steps = config, 0
        self.named = dict(self.model.named_parameters())
        self.first = {name: torch.zeros_like(value) for name, value in self.named.items()}
        self.second = {name: torch.zeros_like(value) for name, value in self.named.items()}
        self.norm = self.loss = 0.0

    def log_probs(self, prompt: list[int], tokens: list[int]) -> torch.Tensor:
        """log π of a response's tokens."""
        logits = self.model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)]

    def sampled(self, told: Told) -> list[list[float]]:
        """What a sampler with these weights would report."""
        with torch.no_grad():
            return [
                self.log_probs(PROMPTS[one.problem], ids).tolist()
                for one, ids in zip(told.responses, told.tokens(), strict=True)
            ]

    def update(self, told: Told) -> None:
        """Make the round's update: the mean over its answered responses of −A·mean(log π)."""
        self.model.zero_grad()
        answered = [
            (one, ids)
            for one, ids in zip(told.responses, told.tokens(), strict=True)
            if one.reason != "error"
        ]
        total = torch.zeros((), dtype=torch.float64)
        self.loss = 0.0
        for one, ids in answered:
            advantage = self.advantage(one, [other for other, _ in answered])
            total = total - advantage * self.log_probs(PROMPTS[one.problem], ids).mean()
            self.loss -= advantage / len(answered)
        (total / len(answered)).backward()
        squares = sum(float((value.grad**2).sum()) for value in self.named.values())
        self.norm = squares**0.5
        self._adam(min(1.0, self.config.clip_grad / self.norm) if self.norm else 0.0)

    def advantage(self, one: Response, answered: list[Response]) -> float:
        """(reward − mean) / deviation over the problem's responses; overlong: reward 0, and 0."""
        assert (self.config.overlong, self.config.normalise) == ("zero", "std")
        rewards = [
            float(other.right and other.reason == "stop")
            for other in answered
            if other.problem == one.problem
        ]
        mean = sum(rewards) / len(rewards)
        spread = (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5
        if one.reason == "length" or not spread:
            return 0.0
        return (float(one.right) - mean) / spread

    @property
    def rate(self) -> float:
        """The next update's learning rate: constant, or half a cosine over the rounds."""
        top, end = self.config.learning_rate, self.config.learning_rate_end
        if self.config.schedule == "constant":
            return top
        progress = self.steps / self.config.max_rounds
        return end + (top - end) * (1 + math.cos(math.pi * progress)) / 2

    def _adam(self, factor: float) -> None:
        rate, decay = self.rate, self.config.weight_decay
        self.steps += 1
        low, high = self.config.betas
        with torch.no_grad():
            for name, value in self.named.items():
                gradient = value.grad * factor
                self.first[name] = low * self.first[name] + (1 - low) * gradient
                self.second[name] = high * self.second[name] + (1 - high) * gradient**2
                if value.ndim > 1:  # biases and norms do not decay
                    value *= 1 - rate * decay
                mean = self.first[name] / (1 - low**self.steps)
                size = (self.second[name] / (1 - high**self.steps)).sqrt() + self.config.eps
                value -= rate * mean / size

    def weights(self) -> dict[str, np.ndarray]:
        """By MindFormers' names."""
        return {
            mindformers_name(name): value.detach().numpy().copy()
            for name, value in self.named.items()
        }


def with_rows(config: RlConfig, rows: int, **changes: Any) -> RlConfig:
    """The same training with other micro-steps."""
    sizes = {"rows": rows, "micro_batch_size": rows // changes.get("data_parallel", 1)}
    return RlConfig.model_validate(config.model_dump() | sizes | changes)
