"""The training process of all rounds: one run of MindFormers' Trainer, watched by a thread.

The runner's thread samples and grades meanwhile. The training process ends by itself when
rounds/end.json is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.rl.render import ROUNDS, round_yaml
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import check_published, published_rounds
from pcl_reasoner.train.render import WORK, to_yaml
from pcl_reasoner.train.session import run_training, starting_paths
from pcl_reasoner.train.stopping import STOPPED


class _Ended(Exception):
    """The runner's thread has ended, so training has to end."""


class _UntilEnded:
    """Progress of the training process, which nobody sees: rounds have their own.

    Args:
        ended: Set when the runner's thread has ended.
    """

    def __init__(self, ended: threading.Event) -> None:
        self.ended = ended

    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """End training if the runner's thread has ended."""
        if self.ended.is_set():
            raise _Ended


class Training:
    """The training process; a context manager that ends it.

    Args:
        config: The stage's settings.
        inputs: Uses ``policy``.
        output: The stage's folder, with the rounds.
        context: The stage's context; its placement names the hosts that train.
        discard: Called before each start with the first round that is made (again).
    """

    def __init__(
        self,
        config: RlConfig,
        inputs: Mapping[str, Path],
        output: Path,
        context: StageContext,
        discard: Callable[[int], None],
    ) -> None:
        self.config, self.policy, self.output = config, inputs["policy"], output
        self.discard = discard
        self.first = 0
        """The first round that this process makes, or makes again."""
        self.ended = threading.Event()
        # Between two rounds training may wait for hours, so hosts must not restart it.
        placement = config.trains_on(context.placement)
        placement = placement.model_copy(update={"stall_seconds": float("inf")})
        self.context = replace(context, placement=placement, progress=_UntilEnded(self.ended))
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="training")

    def __enter__(self) -> Self:
        """Start the training process.

        Raises:
            StageError: Training is on several hosts, and nothing starts it there; or a file of
                an earlier round is damaged.
        """
        hosts = self.context.placement.hosts
        if len(hosts) > 1 and self.context.start is None:
            raise StageError(
                f"training on {len(hosts)} hosts has to be started from here, because it waits for "
                "the rounds that this process makes. Give --start ssh."
            )
        (self.output / STOPPED).unlink(missing_ok=True)
        check_published(self.output / ROUNDS)
        self.first = self.prepare()
        self._thread.start()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        """Wait for its end; after an error, end it."""
        if kind is not None:
            self.ended.set()
        self._thread.join()
        if kind is None:
            self._raise()

    def check(self) -> None:
        """Raise an error if the training process has ended.

        Raises:
            StageError: It failed, or a stop rule ended it.
        """
        if not self._thread.is_alive():
            self._raise()
            raise StageError("the training process ended before the last round.")

    def prepare(self) -> int:
        """Write the configuration from the last checkpoint on; return the rounds that are done."""
        training = self.config.training
        start, done = starting_paths(training, self.policy, self.output / WORK, self.context.warn)
        write_round_yaml(self.config, self.policy, self.output, start)
        rounds = 0
        for one in published_rounds(self.output / ROUNDS):
            done -= one.micro_steps
            rounds += done >= 0
        self.discard(rounds)
        return rounds

    def _run(self) -> None:
        try:
            # The rounds change all the time. That their folder is shared is checked on its own.
            folders = [self.policy]
            steps = self.config.max_rounds
            training = self.config.training
            run_training(training, folders, self.output, steps, self.prepare, self.context)
        except _Ended:
            pass
        except BaseException as error:
            self.error = error

    def _raise(self) -> None:
        stopped = self.output / STOPPED
        if isinstance(self.error, StageError) and stopped.exists():
            reason = stopped.read_text(encoding="utf-8").strip()
            raise StageError(
                f"training was stopped at {reason} A step is a round here. Everything so far is "
                "kept: with another rl.stop_if the same command continues."
            ) from self.error
        if self.error is not None:
            raise self.error


def write_round_yaml(
    config: RlConfig, policy: Path, folder: Path, start: Mapping[str, str] | None = None
) -> None:
    """Write mindformers.yaml of a stage ``rl`` into a folder.

    Args:
        config: The stage's settings.
        policy: The Hugging Face folder that is trained.
        folder: The working directory of the training process.
        start: Where training starts, from `starting_paths`; None: from the policy.
    """
    value = round_yaml(config, policy, folder, start)
    (folder / "mindformers.yaml").write_text(to_yaml(value), encoding="utf-8")
