"""log π of a vocabulary that is cut over ranks: cases, inputs, and the float64 definition."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rank_cases import Case, part_of_rank, relative_error, results

PROGRAM = Path(__file__).parent / "log_probs_rank.py"
ROWS, LENGTH, HIDDEN, VOCABULARY = 4, 8, 16, 32


@dataclass(frozen=True)
class LogProbsCase(Case):
    """A layout, and what is computed in it.

    Args:
        step: Tokens of each row that make a chunk.
        entropy: Whether entropies are made.
        cut: Whether the vocabulary is cut; MindFormers leaves one whole that it cannot divide.
    """

    step: int = LENGTH
    entropy: bool = False
    cut: bool = True


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


def log_shares_of(hidden: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """log π of the whole vocabulary, [B, S, V] float64."""
    logits = hidden.astype(np.float64) @ weight.astype(np.float64).T
    found: np.ndarray = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return found


def expected(case: LogProbsCase) -> dict[str, np.ndarray]:
    """log π, entropies, and the gradients of Σ by_token · log π, in float64."""
    given = drawn()
    log_shares = log_shares_of(given["hidden"], given["weight"])
    shares = np.exp(log_shares)
    one_hot = (given["labels"][..., None] == np.arange(VOCABULARY)).astype(np.float64)
    trained = one_hot.sum(-1)
    by_logits = (one_hot - shares) * (given["by_token"] * trained)[..., None]
    found = {
        "log_probs": (log_shares * one_hot).sum(-1),
        "weight": np.einsum("bsv,bsh->vh", by_logits, given["hidden"].astype(np.float64)),
        "bias": by_logits @ given["weight"].astype(np.float64),
    }
    return found | ({"entropies": -(shares * log_shares).sum(-1)} if case.entropy else {})


def worst_errors(case: LogProbsCase, folder: Path) -> dict[str, float]:
    """The largest relative error of each array over all ranks.

    Raises:
        ValueError: A rank has another part of an array than its own.
    """
    want = expected(case)
    worst = dict.fromkeys(want, 0.0)
    for rank, found in results(case, folder):
        for name, whole in want.items():
            own = own_part(case, rank, name, whole, found[name].shape)
            worst[name] = max(worst[name], relative_error(found[name], own, whole))
    return worst


def own_part(
    case: LogProbsCase, rank: int, name: str, whole: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """A rank's part: of the vocabulary for weights, of the rows for all else."""
    if name == "weight":
        return part_of_rank(case, rank, whole, "tensor") if case.cut else whole
    if name == "bias":
        return part_of_rank(case, rank, whole, "data")
    # No operator with a strategy takes these: MindSpore chooses how it cuts their rows.
    count = len(whole) // shape[0]
    return np.split(whole, count)[rank * count // case.world]
