"""The rounds of on-policy training, from the first to the last.

    probe 0 | round 0 | wait for its update | round 1 | … | probe 5 | round 5 | …

Every step of this loop can be repeated: what it has written is found again after a kill.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.rl.hand_over import HandOver
from pcl_reasoner.rl.render import ROUNDS
from pcl_reasoner.rl.training import Training
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import published_rounds, write_end
from pcl_reasoner.rounds.grading import Graders
from pcl_reasoner.rounds.making import Sampler, is_published, make_round
from pcl_reasoner.rounds.plateau import Fit, decide
from pcl_reasoner.rounds.pool import Pool
from pcl_reasoner.rounds.probe import PROBE, probe, read_probes
from pcl_reasoner.train.stopping import read_steps

SECONDS = "seconds.jsonl"
"""Seconds per round and phase. This file differs between equal runs."""


class InRound:
    """Progress inside a round: the unit is rounds, and the note says what is done now.

    Args:
        progress: The stage's progress.
        total: The largest number of rounds.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress, self.total = progress, total
        self.check: Callable[[], None] | None = None
        """Called at every report; raises an error if training has failed meanwhile."""
        self.number = 0
        """The present round."""

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """Report how far the round is."""
        many = f"{done:,.0f} of {total:,.0f} {unit}" if total else f"{done:,.0f} {unit}"
        self.say(f"{many}, {note}" if note else many)

    def say(self, note: str) -> None:
        """Report what is done now."""
        if self.check is not None:
            self.check()
        self.progress.update(self.number, self.total, "rounds", note)


@dataclass(frozen=True)
class End:
    """Why and when the stage ended.

    Args:
        rounds: Number of rounds.
        why: ``plateau`` or ``max_rounds``.
        fit: The last fit of the held-out accuracy.
    """

    rounds: int
    why: str
    fit: Fit


@dataclass
class Loop:
    """What the rounds need.

    Args:
        config: The stage's settings.
        output: The stage's folder.
        progress: Receives the progress.
        pool: The problems to train on.
        held_out: The held-out problems; None: there are no probes.
        sampler: Draws responses.
        graders: Grade them.
        training: The training process.
        weights: Hands over the weights.
        pad_token_id: Token that fills the end of a row.
    """

    config: RlConfig
    output: Path
    progress: InRound
    pool: Pool
    held_out: Pool | None
    sampler: Sampler
    graders: Graders
    training: Training
    weights: HandOver
    pad_token_id: int
    _loaded: int | None = None
    _seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rounds(self) -> Path:
        """The folder of all rounds."""
        return self.output / ROUNDS

    def run(self) -> End:
        """Make rounds until held-out accuracy no longer rises, or max_rounds are made.

        Raises:
            StageError: Sampling, grading or training failed, or a stop rule ended the stage.
        """
        newest = len(published_rounds(self.rounds)) - 1
        self.progress.check = self.training.check
        for number in range(self.config.max_rounds + 1):
            self.progress.number = number
            end = self._probe_and_decide(number)
            if end is not None:
                write_end(self.rounds, number)
                return end
            if not is_published(self.rounds, number):
                self._load(number)
                self._make(number)
            # Older rounds than the last checkpoint and the newest need no weights any more.
            if number >= min(self.training.first, newest):
                self._take(number)
        raise AssertionError("unreachable")

    def _probe_and_decide(self, number: int) -> End | None:
        """Probe if it is due before a round; return the end if no round follows."""
        last = number == self.config.max_rounds
        probes = read_probes(self.output / PROBE)
        due = number % self.config.probe.every == 0 or last
        if self.held_out is not None and due:
            made = next((one for one in probes if one["round"] == number), None)
            if made is None:
                self._load(number)
                with self._timed("probe"):
                    parts = (self.held_out, self.sampler, self.graders)
                    probes.append(probe(number, self.output, self.config, *parts))
            so_far = [one for one in probes if one["round"] <= number]
            rules = self.config.plateau
            fit = decide(so_far, rules) if rules else Fit()
            if fit.stop:
                return End(number, "plateau", fit)
            if last:
                return End(number, "max_rounds", fit)
        return End(number, "max_rounds", Fit()) if last else None

    def _load(self, number: int) -> None:
        """Give the sampler the weights of a round, unless it has them."""
        if self._loaded != number:
            with self._timed("load"):
                self.sampler.load(self.weights.before(number))
            self._loaded = number

    def _make(self, number: int) -> None:
        sha = self.weights.sha_before(number)
        parts = (self.pool, self.sampler, self.graders, sha, self.pad_token_id)
        with self._timed("sample"):
            figures = make_round(number, self.rounds, self.config, *parts)
        self.progress.say(f"reward {figures.mean_reward:.3f}, {figures.trained:,} trained")

    def _take(self, number: int) -> None:
        """Wait for a round's update, and make a folder of its weights."""
        with self._timed("train"):
            self.weights.take(number, self.training.check)
        self.weights.forget(number, self.config.keep_weights)
        self._check_mismatch(number)
        record = {"round": number, **{name: round(s, 3) for name, s in self._seconds.items()}}
        with (self.output / SECONDS).open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(record) + "\n")
        self._seconds.clear()

    def _check_mismatch(self, number: int) -> None:
        limit = self.config.max_mismatch
        lines = read_steps(self.output / "metrics.jsonl")
        line = next((one for one in lines if one["step"] == number + 1), None)
        found = line.get("mismatch_abs") if line else None
        if limit is not None and found is not None and found > limit:
            raise StageError(
                f"round {number}: the trainer's log-probs differ from the sampler's by {found:.2g} "
                f"per token, the limit is max_mismatch {limit:g}. The responses were not drawn by "
                "the policy that is trained: compare precision, template and weights of servers "
                "and trainer. With another max_mismatch the same command continues."
            )

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            passed = time.monotonic() - began
            self._seconds[phase] = self._seconds.get(phase, 0.0) + passed


def described(end: End) -> dict[str, Any]:
    """Return the content of plateau.json, without counts."""
    fit = end.fit
    return {
        "stopped": end.why,
        "rounds": end.rounds,
        "gain": fit.gain,
        "se": fit.se,
        "fit": {"rounds": list(fit.rounds), "intercept": fit.intercept, "slope": fit.slope},
    }
