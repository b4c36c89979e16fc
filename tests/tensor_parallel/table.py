"""Prints the errors of log π, losses and gradients on ranks, with gathered scores and before.

    python tests/tensor_parallel/table.py [--only-losses] [--mindspore-kernels]

An error is max|found − expected| / max|expected|, expected in float64, and the worst over ranks.
"before" lays the scores as pcl_reasoner/losses/chunked.py did at first, with AllReduces. Exp, Log,
Softmax and LogSoftmax are NumPy's, unless MindSpore's own kernels are asked for.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

import log_probs_cases
import losses_cases
import rank_path  # noqa: F401  (what this program imports)
from rank_cases import run

from pcl_reasoner.losses import VARIANTS

LAYOUTS = [(1, 2), (1, 4), (2, 2)]
STEPS = [8, 4, 3, 1]
"""Tokens of a row of 8 in a chunk: 1, 2, 3 and 8 chunks."""


def of_log_probs(folder: Path, exact_kernels: bool) -> None:
    """Data x tensor ranks, chunks, with and without entropies."""
    made = itertools.product(LAYOUTS, STEPS, (False, True), (True, False))
    cases = [
        log_probs_cases.LogProbsCase(*layout, reduced, step, entropy)
        for layout, step, entropy, reduced in made
    ]
    for world in (2, 4):
        some = [case for case in cases if case.world == world]
        run(log_probs_cases.PROGRAM, some, log_probs_cases.drawn(), folder, exact_kernels)
    print("| DP x TP | chunks | entropies | log π | entropy | dW before | dW | dh before | dh |")
    print("|---|---|---|---|---|---|---|---|---|")
    for before, after in zip(cases[::2], cases[1::2], strict=True):
        old = log_probs_cases.worst_errors(before, folder)
        new = log_probs_cases.worst_errors(after, folder)
        cells = (
            f"{after.data} x {after.tensor}",
            str(-(-log_probs_cases.LENGTH // after.step)),
            "yes" if after.entropy else "no",
            f"{new['log_probs']:.1e}",
            f"{new['entropies']:.1e}" if after.entropy else "-",
            *(f"{errors[name]:.1e}" for name in ("weight", "bias") for errors in (old, new)),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def of_losses(folder: Path, exact_kernels: bool) -> None:
    """Each loss over 2 x 2 ranks."""
    cases = [
        losses_cases.LossCase(2, 2, reduced, loss) for loss in VARIANTS for reduced in (True, False)
    ]
    run(losses_cases.PROGRAM, cases, losses_cases.drawn()[0], folder, exact_kernels)
    print("| loss, 2 x 2 | loss | figures | dW before | dW | dh before | dh |")
    print("|---|---|---|---|---|---|---|")
    for before, after in zip(cases[::2], cases[1::2], strict=True):
        old, new = (losses_cases.worst_errors(case, folder) for case in (before, after))
        print(
            f"| {after.loss} | {new['loss']:.1e} | {new['figures']:.1e} | {old['weight']:.1e} | "
            f"{new['weight']:.1e} | {old['hidden']:.1e} | {new['hidden']:.1e} |",
            flush=True,
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only-losses", action="store_true")
    parser.add_argument("--mindspore-kernels", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not given.only_losses:
            of_log_probs(Path(folder), not given.mindspore_kernels)
            print()
        of_losses(Path(folder), not given.mindspore_kernels)


if __name__ == "__main__":
    main()
