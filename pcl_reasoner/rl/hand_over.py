"""Turns the weights after a round's update into a folder that samplers can load.

    work/weights/00017/rank_*/…          slices, written by the training process
    rounds/00017/weights/                a complete Hugging Face folder, renamed when it is complete
    rounds/00017/weights.json            {"round": 17, "sha256": "…"}

weights.json is written before the folder gets its name. A round whose update is made again, after a
kill, must give the same weights.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pcl_reasoner.core.artifact import fingerprint, fsync, write_atomically
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.json_lines import own_json
from pcl_reasoner.prompt.trained import copy_prompt, write_template
from pcl_reasoner.rl.render import ROUNDS, WEIGHTS
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import ROUND, round_folder, slices_file
from pcl_reasoner.train.render import WORK
from pcl_reasoner.weights import conversion
from pcl_reasoner.weights.bfloat16 import rounded
from pcl_reasoner.weights.seals import changed_files
from pcl_reasoner.weights.slices import open_ranks
from pcl_reasoner.weights.stream import StoredTensor, digest, read_files, weight_files

FOLDER, HASH = "weights", "weights.json"
_PAUSE = 0.01
"""Seconds between two looks for slices."""
_SHARD_BYTES = 5_000_000_000


class HandOver:
    """The weights of a stage's rounds.

    Args:
        output: The stage's folder.
        policy: The weights before round 0.
        config: Uses the number of ranks, each of which writes slices; ``weights_dtype``; and the
            device: on a CPU, equal rows must give equal weights, bit for bit.
        warn: Called with a warning.
    """

    def __init__(
        self, output: Path, policy: Path, config: RlConfig, warn: Callable[[str], None]
    ) -> None:
        self.output, self.rounds, self.policy = output, output / ROUNDS, policy
        self.ranks, self.dtype = config.devices, config.weights_dtype
        self.same, self.warn = config.device == "CPU", warn
        self._reading = threading.Lock()
        self._sound: set[int] = set()
        """Rounds whose folder of weights this process has written or compared."""
        self._made_again_from: int | None = None
        """The first round that training makes again, until one of them is compared."""

    def before(self, number: int) -> Path:
        """Return the folder of the weights with which a round is sampled.

        Raises:
            StageError: An earlier process made it, and a tensor is not as it was then.
        """
        if number == 0:
            return self.policy
        folder = round_folder(self.rounds, number - 1) / FOLDER
        if number - 1 not in self._sound and folder.is_dir():
            found = read_files(weight_files(folder))
            sha256 = fingerprint({name: digest(tensor) for name, tensor in found.items()})
            if sha256 != self.sha_before(number):
                raise self._damaged(folder)
            self._sound.add(number - 1)
        return folder

    def _damaged(self, file: Path) -> StageError:
        return StageError(
            f"{file}: changed after it had been written. Delete {self.output} to begin the stage "
            "again, or restore the file from a copy. Check the disk."
        )

    def sha_before(self, number: int) -> str:
        """Return the hash of the weights with which a round is sampled."""
        if number == 0:
            return "policy"
        file = round_folder(self.rounds, number - 1) / HASH
        return str(own_json(file)["sha256"])

    def is_there(self, number: int) -> bool:
        """Return whether the weights after a round's update can be loaded."""
        return (round_folder(self.rounds, number) / FOLDER).is_dir()

    def take(self, number: int, check: Callable[[], None]) -> None:
        """Wait for the slices after a round's update, and make a folder of them.

        Args:
            number: The round.
            check: Called while waiting; raises an error if training has ended.

        Raises:
            StageError: The weights differ from those of the same round before a kill.
        """
        files = self._files(number)
        while not all(file.exists() for file in files.values()):
            check()
            time.sleep(_PAUSE)
        with self._reading:
            again, self._made_again_from = self._made_again_from, None
            if again is not None and again < number and self.is_there(number - 1):
                self._write(number - 1)
            self._write(number)

    def write_checkpoint(self, number: int, file: Path) -> None:
        """Write the weights after a round to one file, by MindFormers' names, in float32."""
        conversion.write_opened(self._opened(number), self.output / WEIGHTS, self.policy, file)

    def _files(self, number: int) -> dict[int, Path]:
        """Return rank -> the file with its slices of a round."""
        weights = self.output / WEIGHTS
        return {rank: slices_file(weights, number, rank) for rank in range(self.ranks)}

    def _opened(self, number: int) -> dict[str, StoredTensor]:
        for file in changed_files(self._files(number).values()):
            raise self._damaged(file)
        strategies = [self.output / WORK / "strategy"]
        return open_ranks(self._files(number), strategies, self.output / WEIGHTS)

    def _write(self, number: int) -> None:
        """Write the folder of a round's weights from its slices."""
        found = self._opened(number)
        if self.dtype == "bfloat16":
            found = {name: rounded(tensor) for name, tensor in found.items()}
        folder = round_folder(self.rounds, number)
        new = folder / f".{FOLDER}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        shape = conversion.shape_in(self.policy)
        parity = conversion.write_model(
            found, shape, self.output / WEIGHTS, new, "huggingface", _SHARD_BYTES
        )
        conversion.copy_others(self.policy, new)
        copy_prompt(self.policy, new)
        write_template(new)
        for path in [*new.iterdir(), new]:
            fsync(path)
        sha256 = fingerprint({name: one["sha256"] for name, one in parity["tensors"].items()})
        if self._is_wanted(number, sha256):
            self._publish(number, new, sha256)
        else:
            shutil.rmtree(new)

    def _is_wanted(self, number: int, sha256: str) -> bool:
        """Return whether the next round needs these weights; compare them with those before."""
        file = round_folder(self.rounds, number) / HASH
        if not file.exists():
            return True
        if own_json(file)["sha256"] == sha256:
            return not self.is_there(number)
        problem = (
            f"round {number}: its update was made again from the same rows, and the weights differ "
            f"from those before ({file})."
        )
        if self.same:
            raise StageError(
                f"{problem} On a CPU training is deterministic, so a file was changed or the "
                "programs are of other versions. Delete the stage's folder to train again."
            )
        is_used = (round_folder(self.rounds, number + 1) / ROUND).is_file()
        used = "was sampled with the earlier weights" if is_used else "is sampled with the new ones"
        self.warn(f"{problem} The next round {used}.")
        return not is_used

    def _publish(self, number: int, new: Path, sha256: str) -> None:
        """Give a folder of weights its name, in place of one that is there."""
        folder = round_folder(self.rounds, number)
        old = folder / f".old_{FOLDER}"
        shutil.rmtree(old, ignore_errors=True)
        if self.is_there(number):
            (folder / FOLDER).rename(old)
        write_atomically(folder / HASH, json.dumps({"round": number, "sha256": sha256}) + "\n")
        new.rename(folder / FOLDER)
        self._sound.add(number)
        shutil.rmtree(old, ignore_errors=True)

    def discard(self, first: int) -> None:
        """Delete the slices of rounds that training will make again, from ``first`` on."""
        with self._reading:
            self._made_again_from = first
            for old in (self.output / WEIGHTS).glob("[0-9]*"):
                if int(old.name) >= first:
                    shutil.rmtree(old)

    def forget(self, number: int, keep: int) -> None:
        """Delete slices and weights that are not needed after a round is handed over.

        Args:
            number: The last round whose weights are there.
            keep: Rounds whose weights are kept.
        """
        for old in (self.output / WEIGHTS).glob("[0-9]*"):
            if int(old.name) < number:
                shutil.rmtree(old)
        for old in self.rounds.glob(f"[0-9]*/{FOLDER}"):
            if int(old.parent.name) <= number - keep:
                shutil.rmtree(old)
