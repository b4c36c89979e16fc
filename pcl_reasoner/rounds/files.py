"""The files through which the runner's process and the training process exchange rounds.

    rounds/00017/rows/       the round's packed rows, an Arrow folder
    rounds/00017/round.json  {"round": 17, "micro_steps": 3, "segments": 126, "rows": 11}
    rounds/end.json          {"rounds": 18}: no round follows
    weights/00017/rank_0/policy_rank_0.safetensors   a rank's slices after round 17's update

The runner writes the first three, and round.json last: once it exists, the round is complete and
never changes. The training process makes one update per round, and every rank writes its slices.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pcl_reasoner.core.artifact import write_atomically

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


def round_folder(rounds: Path, number: int) -> Path:
    """Return the folder of a round."""
    return rounds / f"{number:05d}"


def publish(rounds: Path, published: Published) -> None:
    """Write round.json; everything else of the round must be on the disk already."""
    file = round_folder(rounds, published.round) / ROUND
    write_atomically(file, json.dumps(asdict(published)) + "\n")


def read_published(rounds: Path, number: int) -> Published | None:
    """Return a round; None if it is not published yet."""
    try:
        text = (round_folder(rounds, number) / ROUND).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return Published(**json.loads(text))


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
