"""Cases, what they are given, and their float64 definitions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from ranks import EXACT_KERNELS
from run_ranks import run_ranks

PROGRAM = Path(__file__).parent / "log_probs_rank.py"
ROWS, LENGTH, HIDDEN, VOCABULARY = 4, 8, 16, 32


@dataclass(frozen=True)
class Case:
    """A layout, and what is computed in it.

    Args:
        data: Data-parallel ranks.
        tensor: Tensor-parallel ranks: as many parts of the vocabulary.
        step: Tokens of each row that make a chunk.
        entropy: Whether entropies are made.
        reduced: With AllReduces in place of gathered scores, as it was at first.
        cut: Whether the vocabulary is cut; MindFormers leaves it whole where it cannot be divided.
    """

    data: int
    tensor: int
    step: int = LENGTH
    entropy: bool = False
    reduced: bool = False
    cut: bool = True

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.data * self.tensor

    @property
    def name(self) -> str:
        """A file's name."""
        return "-".join(str(int(value)) for value in asdict(self).values())


def drawn() -> dict[str, np.ndarray]:
    """Hidden states, weights, labels (three of them −100), and a gradient by log π."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, VOCABULARY, (ROWS, LENGTH)).astype(np.int32)
    labels[0, 1] = labels[0, 2] = labels[2, 5] = -100
    return {
        "hidden": rng.standard_normal((ROWS, LENGTH, HIDDEN)).astype(np.float32),
        "weight": rng.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32),
        "labels": labels,
        "by_token": rng.standard_normal((ROWS, LENGTH)).astype(np.float32),
    }


def expected(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """log π, entropies, and the gradients of Σ by_token · log π, in float64."""
    hidden, weight = given["hidden"].astype(np.float64), given["weight"].astype(np.float64)
    logits = hidden @ weight.T
    log_shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    shares = np.exp(log_shares)
    one_hot = (given["labels"][..., None] == np.arange(len(weight))).astype(np.float64)
    trained = one_hot.sum(-1)
    by_logits = (one_hot - shares) * (given["by_token"] * trained)[..., None]
    return {
        "log_probs": (log_shares * one_hot).sum(-1),
        "entropies": -(shares * log_shares).sum(-1),
        "weight": np.einsum("bsv,bsh->vh", by_logits, hidden),
        "bias": by_logits @ weight,
    }


def run(cases: Sequence[Case], folder: Path, exact_kernels: bool = True) -> None:
    """Run cases of one world size; every rank's arrays are in the folder after it."""
    (world,) = {case.world for case in cases}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in cases]))
    np.savez(folder / "inputs.npz", **drawn())
    run_ranks(world, PROGRAM, [str(folder)], {EXACT_KERNELS: str(int(exact_kernels))})


def worst_errors(case: Case, folder: Path) -> dict[str, float]:
    """Largest difference from float64 over all ranks, relative to the largest expected number."""
    want = expected(drawn())
    worst = dict.fromkeys(want, 0.0)
    for rank in range(case.world):
        found = np.load(folder / f"{case.name}-{rank}.npz")
        for name, whole in want.items():
            if name == "entropies" and not case.entropy:
                continue
            own = own_part(case, rank, name, whole, found[name].shape)
            error = np.abs(found[name] - own).max() / np.abs(whole).max()
            worst[name] = max(worst[name], float(error))
    return worst


def own_part(
    case: Case, rank: int, name: str, whole: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """A rank's slice: of the vocabulary for weights, of the rows for all else.

    MindSpore lays rows that no operator with a strategy takes over as many ranks as it likes.
    """
    if shape == whole.shape:
        return whole
    count = len(whole) // shape[0]
    number = rank % case.tensor if name == "weight" else rank * count // case.world
    return np.split(whole, count)[number]
