"""Callbacks of on-policy training: what happens at the ends of a round.

micro-step      0       1       2       3
round           0       0       1       2
last of round   no      yes     yes     yes
metrics.jsonl           step 1  step 2  step 3
weights/                00000   00001   00002
checkpoint              with checkpoint_rounds: 2 after round 1
"""

import os
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindformers.core.callback import CheckpointMonitor
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore import Tensor
from safetensors.numpy import save_file

from pcl_reasoner.core.artifact import atomic_file, fsync
from pcl_reasoner.rounds.files import slices_file
from pcl_reasoner.trainer.mismatch import read_mismatch, reset_mismatch
from pcl_reasoner.trainer.round_rows import Place, Places
from pcl_reasoner.trainer.round_step import LAST_OF_ROUND, TOTALS, RoundUpdate
from pcl_reasoner.trainer.step import PclMetrics, number_of
from pcl_reasoner.weights.seals import seal_files


class _RoundCallback:
    """Knows the round of the present micro-step."""

    def __init__(self, rounds: str) -> None:
        self.places = Places(Path(rounds))
        self.micro_steps_before = 0

    def begin(self, run_context: Any) -> None:
        # MindSpore counts a resumed run's steps from 0; the data set says how many it skips.
        self.micro_steps_before = int(run_context.original_args().train_dataset.get_init_step())

    def wait(self, run_context: Any) -> Place | None:
        """Wait for the present micro-step's round; return its place, or None after the last round.

        With sink mode the graph reads its rows itself. It must not start before they are published:
        a device's operator has a time limit.
        """
        return self.places.wait(self._micro_step(run_context))

    def place(self, run_context: Any) -> Place | None:
        """Return the present micro-step's place; None after the last round."""
        return self.places.known(self._micro_step(run_context))

    def _micro_step(self, run_context: Any) -> int:
        return self.micro_steps_before + int(run_context.original_args().cur_step_num) - 1


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class PclRounds(PclMetrics):
    """Says which micro-step is a round's last; writes a line of metrics and the weights after it.

    Args:
        path, rank, loss_divisor, stop_if: As in PclMetrics; a step is a round.
        rounds: Folder of all rounds.
        weights: Folder for the ranks' slices (rounds/files.py).
    """

    def __init__(self, path: str, rounds: str, weights: str, **kwargs: Any) -> None:
        super().__init__(path, **kwargs)
        self.rounds, self.weights = _RoundCallback(rounds), Path(weights)
        self.loss = 0.0
        """Sum of the losses of the present round's micro-steps."""
        self.update: Any = None
        """The step's RoundUpdate."""

    def steps_done(self, run_context: Any) -> int:
        """Return the number of rounds that a resumed run has made."""
        self.rounds.begin(run_context)
        before = self.rounds.micro_steps_before
        place = self.rounds.places.known(before - 1) if before else None
        return place.round.round + 1 if place else 0

    def on_train_begin(self, run_context: Any) -> None:
        """Find the Cell with the parameter that marks a round's last micro-step."""
        super().on_train_begin(run_context)
        # With sink mode MindSpore puts a Cell around the step.
        cells = run_context.original_args().train_network.cells_and_names()
        self.update = next(cell for _, cell in cells if isinstance(cell, RoundUpdate))

    def on_train_step_begin(self, run_context: Any) -> None:
        """Wait for the round; if this is its first micro-step, set its sums to 0."""
        place = self.rounds.wait(run_context)
        if place is None:
            # Rows after the last round are empty; their step changes nothing.
            self.update.last.set_data(Tensor(0, ms.int32))
            return
        if place.micro_step == 0:
            self.loss = 0.0
            super().on_train_step_begin(run_context)
            reset_mismatch(run_context.original_args().train_network)
        self.update.last.set_data(Tensor(int(place.is_last), ms.int32))

    def on_train_step_end(self, run_context: Any) -> None:
        """After a round's last micro-step write its line and the weights; end after all rounds."""
        place = self.rounds.place(run_context)
        if place is None:
            run_context.request_stop()
            return
        args = run_context.original_args()
        self.loss += number_of(args.net_outputs[0])
        if not place.is_last:
            return
        record = self.record(run_context, place.round.round + 1, self.loss)
        self.write(record | read_mismatch(args.train_network))
        # Before the weights are handed over: the next round would be sampled otherwise.
        self.end_if_asked()
        self._write_slices(place.round.round)

    def _write_slices(self, number: int) -> None:
        rank = int(os.environ.get("RANK_ID", "0"))
        file = slices_file(self.weights, number, rank)
        file.parent.mkdir(parents=True, exist_ok=True)
        weights = self.update.optimizer.parameters
        tensors = {one.name: np.ascontiguousarray(one.asnumpy()) for one in weights}
        with atomic_file(file) as temporary:
            save_file(tensors, temporary)
            fsync(temporary)
        seal_files(file.parent)


class PclRoundCheckpoint(CheckpointMonitor):
    """MindFormers' checkpoints, but only after a round: MindFormers counts micro-steps.

    Args:
        rounds: Folder of all rounds.
        checkpoint_rounds: Rounds between two checkpoints.
        kwargs: MindFormers' own arguments.
    """

    def __init__(self, rounds: str, checkpoint_rounds: int, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "save_checkpoint_steps": 1})
        self.filter_list: list[str] = [*self.filter_list, TOTALS, LAST_OF_ROUND]
        self.checkpoint_rounds = checkpoint_rounds
        self.rounds = _RoundCallback(rounds)

    def begin(self, run_context: Any) -> None:
        """Find out how many micro-steps were made before."""
        super().begin(run_context)
        self.rounds.begin(run_context)

    def step_end(self, run_context: Any) -> None:
        """Save a checkpoint if the round that ends is due."""
        place = self.rounds.place(run_context)
        rounds = place.round.round + 1 if place and place.is_last else 0
        if rounds and rounds % self.checkpoint_rounds == 0:
            super().step_end(run_context)

    def end(self, run_context: Any) -> None:
        """Save nothing: the weights of every round are written already."""
