"""The loader of on-policy training, which waits for the rows of the next round.

data_loader:
  type: PclRoundLoader
  rounds: rounds               # see rounds/files.py
  rows: 4                      # per micro-step, over all ranks
  max_micro_steps: 768         # of all rounds; rounds/end.json ends the run earlier
  max_segments: 16
  create_compressed_eod_mask: False

    7 rows in round 0, 3 in round 1, 4 rows per micro-step
    index  0 … 3   micro-step 0 of round 0
           4 … 7   micro-step 1 of round 0; row 7 is empty
           8 … 11  micro-step 0 of round 1; row 11 is empty
          12 …     waits until round 2 is published
"""

import time
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.dataset import GeneratorDataset

from pcl_reasoner.losses.columns import OPTIONAL_COLUMNS, column_names
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.rounds.files import ROWS, Published, has_ended, read_published, round_folder
from pcl_reasoner.trainer import rows

FIRST_PAUSE, LONGEST_PAUSE = 0.005, 1.0
"""Limits of the seconds between two looks for the next round."""
_SHARE_OF_WAIT = 0.05
"""Seconds between two looks per second of waiting: a round is seen at most 5 % too late."""
_READ = ("input_ids", "labels", "segment_ids", "actual_seq_len", "rewards")


@dataclass(frozen=True)
class Place:
    """A micro-step's round, and its number in the round, from 0."""

    round: Published
    micro_step: int

    @property
    def is_last(self) -> bool:
        """True for the micro-step after whose backward pass the weights are updated."""
        return self.micro_step == self.round.micro_steps - 1


class Places:
    """Finds the round of each micro-step of the run.

    Args:
        folder: The folder of all rounds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.published: list[Published] = []
        self.ends: list[int] = []
        """Number of micro-steps up to the end of each round."""

    def known(self, micro_step: int) -> Place | None:
        """Return the place of a micro-step; None if its round is not published yet."""
        while not self.ends or self.ends[-1] <= micro_step:
            found = read_published(self.folder, len(self.published))
            if found is None:
                return None
            self.published.append(found)
            self.ends.append((self.ends[-1] if self.ends else 0) + found.micro_steps)
        number = bisect_right(self.ends, micro_step)
        begin = self.ends[number] - self.published[number].micro_steps
        return Place(self.published[number], micro_step - begin)

    def wait(self, micro_step: int) -> Place | None:
        """Wait until a micro-step's round is published; None if the run ends before it."""
        began = time.monotonic()
        while (place := self.known(micro_step)) is None:
            # A round is published before the end: look once more after the end is seen.
            if has_ended(self.folder):
                return self.known(micro_step)
            pause = _SHARE_OF_WAIT * (time.monotonic() - began)
            time.sleep(min(max(pause, FIRST_PAUSE), LONGEST_PAUSE))
        return place


class RoundRows:
    """Random access to the rows of all rounds; a row that is not published yet is waited for.

    Args:
        rounds: The folder of all rounds.
        rows_per_step: Rows per micro-step, over all ranks.
        max_micro_steps: Micro-steps after which the run ends in any case.
        max_segments: G, segments that a row can hold.
        compressed: Whether the last column is ``actual_seq_len`` instead of a dense mask.
        scale: As in PclPackedDataLoader.
        length: Tokens per row.
    """

    def __init__(
        self,
        rounds: Path,
        rows_per_step: int,
        max_micro_steps: int,
        max_segments: int,
        compressed: bool,
        scale: float,
        length: int,
    ) -> None:
        self.places = Places(rounds)
        self.rows_per_step, self.max_micro_steps = rows_per_step, max_micro_steps
        self.max_segments, self.scale, self.length = max_segments, scale, length
        # MindFormers reads this attribute to know the kind of mask in a batch.
        self.create_compressed_eod_mask = compressed
        self.column_names = column_names(compressed)
        self._open: tuple[int, Any] | None = None
        """The last round whose rows were read, and its table."""

    def __len__(self) -> int:
        """Number of rows of all micro-steps."""
        return self.max_micro_steps * self.rows_per_step

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return the model's columns of a row."""
        micro_step, number = divmod(int(index), self.rows_per_step)
        place = self.places.wait(micro_step)
        row, weight = self._empty_row(), 0.0
        if place is not None:
            number += place.micro_step * self.rows_per_step
            weight = self.scale / max(place.round.segments, 1)
            if number < place.round.rows:
                row = self._row(place.round.round, number)
        # Losses of on-policy training are means over responses, so tokens have no weight.
        columns = rows.model_row(
            row, self.max_segments, weight, 0.0, self.create_compressed_eod_mask
        )
        return tuple(columns[name] for name in self.column_names)

    def _row(self, number: int, row: int) -> dict[str, Any]:
        if self._open is None or self._open[0] != number:
            folder = round_folder(self.places.folder, number) / ROWS
            self._open = (number, read_arrow_folder(folder))
        table = self._open[1]
        read = [name for name in table.column_names if name in {*_READ, *OPTIONAL_COLUMNS}]
        return {name: table[name][row].values.to_numpy(zero_copy_only=False) for name in read}

    def _empty_row(self) -> dict[str, Any]:
        zeros = np.zeros(self.length, np.int32)
        return {
            "input_ids": zeros,
            "labels": np.full(self.length, rows.IGNORED_LABEL, np.int32),
            "segment_ids": zeros,
            "actual_seq_len": [],
            "rewards": [],
        }


@MindFormerRegister.register(MindFormerModuleType.DATASET_LOADER)
class PclRoundLoader:
    """Builds the data set of all rounds; each of N ranks gets every N-th row."""

    def __new__(
        cls,
        rounds: str,
        rows: int,
        max_micro_steps: int,
        max_segments: int,
        seq_length: int,
        create_compressed_eod_mask: bool,
        gradient_scale: float = 1.0,
        shard_id: int | None = None,
        num_shards: int | None = None,
        **kwargs: Any,
    ) -> GeneratorDataset:
        """Return the data set; MindFormers gives further arguments, which are not used."""
        source = RoundRows(
            Path(rounds),
            rows,
            max_micro_steps,
            max_segments,
            bool(create_compressed_eod_mask),
            gradient_scale,
            seq_length,
        )
        return GeneratorDataset(
            source,
            column_names=source.column_names,
            # Several readers would wait for the same round. A thread reads it fast enough.
            num_parallel_workers=1,
            python_multiprocessing=False,
            shard_id=shard_id,
            num_shards=num_shards,
            shuffle=False,
        )
