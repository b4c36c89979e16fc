"""The files through which the runner's process and the training process exchange rounds.

    rounds/00017/rows/       the round's packed rows, an Arrow folder
    rounds/00017/round.json  {"sha256": …, "value": {"round": 17, "micro_steps": 3,
                              "segments": 126, "rows": 11, "files": {"rows/state.json": "9f8…"}}}
    rounds/end.json          {"rounds": 18}: no round follows
    weights/00017/rank_0/policy_rank_0.safetensors   a rank's slices after round 17's update

The runner writes the first three, and round.json last: once it exists, the round is complete and
never changes. The training process makes one update per round, and every rank writes its slices.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import (
    hash_file,
    read_checked,
    write_atomically,
    write_checked,
)
from pcl_reasoner.core.errors import StageError

ROUND = "round.json"
ROWS = "rows"
END = "end.json"


@dataclass(frozen=True)
class Published:
    """A round that the training process can train on.

    Args:
        round: Its number, from 0.
        micro_steps: Forward and backward passes before the update.
        segments: The responses over which the loss is a mean, also those without an advantage.
        rows: Packed rows; the last micro-step is filled up with empty rows.
    """

    round: int
    micro_steps: int
    segments: int
    rows: int


_FIELDS = ("round", "micro_steps", "segments", "rows")


def round_folder(rounds: Path, number: int) -> Path:
    """Return the folder of a round."""
    return rounds / f"{number:05d}"


def publish(rounds: Path, published: Published) -> None:
    """Write round.json; everything else of the round must be on the disk already."""
    folder = round_folder(rounds, published.round)
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*"))]
    kept = [name for name in names if (folder / name).is_file() and ".partial." not in name]
    files = {name: hash_file(folder / name) for name in kept if name != ROUND}
    write_checked(folder / ROUND, asdict(published) | {"files": files})


def read_published(rounds: Path, number: int) -> Published | None:
    """Return a round; None if it is not published yet.

    Raises:
        StageError: round.json is damaged.
    """
    found = _read(rounds, number)
    return None if found is None else Published(**{name: found[name] for name in _FIELDS})


def _read(rounds: Path, number: int) -> dict[str, Any] | None:
    file = round_folder(rounds, number) / ROUND
    if not file.exists():  # once it exists, it is complete: another process may write it now
        return None
    found: dict[str, Any] | None = read_checked(file)
    if found is None:
        raise _damaged(file)
    return found


def check_published(rounds: Path) -> None:
    """Compare the files of all published rounds with their hashes.

    Raises:
        StageError: A file is missing, or has another content than it was published with.
    """
    number = 0
    while (found := _read(rounds, number)) is not None:
        folder = round_folder(rounds, number)
        for name, sha256 in found["files"].items():
            if not (folder / name).is_file() or hash_file(folder / name) != sha256:
                raise _damaged(folder / name)
        number += 1


def _damaged(file: Path) -> StageError:
    stage = next(one for one in file.parents if one.suffix == ".partial" or not one.name)
    return StageError(
        f"{file}: missing, or changed after it had been published. The rounds after it depend on "
        f"it. Restore it from a copy, or delete {stage} to begin the stage again. Check the disk."
    )


def published_rounds(rounds: Path) -> list[Published]:
    """Return all published rounds, in order."""
    found: list[Published] = []
    while (one := read_published(rounds, len(found))) is not None:
        found.append(one)
    return found


def write_end(rounds: Path, count: int) -> None:
    """Tell the training process that ``count`` rounds are all."""
    write_atomically(rounds / END, json.dumps({"rounds": count}) + "\n")


def has_ended(rounds: Path) -> bool:
    """Return whether no round follows those that are published."""
    return (rounds / END).is_file()


def slices_file(weights: Path, number: int, rank: int) -> Path:
    """Return the file with a rank's slices of the weights after a round's update."""
    return weights / f"{number:05d}" / f"rank_{rank}" / f"policy_rank_{rank}.safetensors"
