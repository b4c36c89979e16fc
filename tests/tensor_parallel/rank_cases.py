"""Cases of a layout: run on ranks, and their errors against float64."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from run_ranks import run_ranks

from pcl_reasoner.cpu_ranks.variables import EXACT


@dataclass(frozen=True)
class Case:
    """A layout of ranks.

    Args:
        data: Data-parallel ranks.
        tensor: Tensor-parallel ranks: as many parts of the vocabulary.
        reduced: With AllReduces in place of gathered scores, as it was at first.
    """

    data: int
    tensor: int
    reduced: bool = False

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.data * self.tensor

    @property
    def name(self) -> str:
        """The start of the names of its files."""
        return "-".join(str(value) for value in asdict(self).values())


def run(
    program: Path,
    cases: Sequence[Case],
    inputs: dict[str, np.ndarray],
    folder: Path,
    exact_kernels: bool = True,
) -> None:
    """Run cases of one world size; every rank writes its arrays into the folder.

    Args:
        program: What a rank runs; it is given the folder.
        cases: In this order on every rank.
        inputs: The whole arrays, of all ranks.
        folder: Made where it is not there.
        exact_kernels: NumPy in the place of MindSpore's approximate CPU kernels.
    """
    (world,) = {case.world for case in cases}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in cases]))
    np.savez(folder / "inputs.npz", **inputs)
    run_ranks(world, program, [str(folder)], {EXACT: str(int(exact_kernels))})


def results(case: Case, folder: Path) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Every rank, and the arrays that it wrote."""
    for rank in range(case.world):
        yield rank, dict(np.load(folder / f"{case.name}-{rank}.npz"))


def part_of_rank(case: Case, rank: int, whole: np.ndarray, by: str) -> np.ndarray:
    """A rank's part of an array that is cut along its first axis, by ``data`` or ``tensor``."""
    place = rank // case.tensor if by == "data" else rank % case.tensor
    return np.split(whole, getattr(case, by))[place]


def relative_error(found: np.ndarray, own: np.ndarray, whole: np.ndarray) -> float:
    """Largest difference over the largest expected number; infinite where a number is missing.

    Args:
        found: What a rank has.
        own: Its part of what is expected.
        whole: All that is expected.

    Raises:
        ValueError: The rank has another part.
    """
    if found.shape != own.shape:
        raise ValueError(f"a rank has an array of {found.shape}, expected {own.shape}")
    if not np.isfinite(found).all():
        return np.inf
    return float(np.abs(found - own).max() / np.abs(whole).max())
