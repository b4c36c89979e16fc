"""log π of a cut vocabulary and its gradients, run on ranks: those of float64."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_probs_cases import LENGTH, PROGRAM, LogProbsCase, drawn, worst_errors
from rank_cases import run

pytestmark = pytest.mark.slow

LAYOUTS = [(2, 1), (1, 2), (1, 4), (2, 2)]
"""Data-parallel and tensor-parallel ranks."""
STEPS = [LENGTH, 3]
"""One chunk; three, the last of them shorter."""
CASES = [
    LogProbsCase(*layout, step=step, entropy=entropy)
    for layout in LAYOUTS
    for step in STEPS
    for entropy in (False, True)
]
NOT_CUT = LogProbsCase(2, 2, step=3, entropy=True, cut=False)
REDUCED = LogProbsCase(2, 2, step=3, entropy=True, reduced=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with every rank's arrays."""
    made = tmp_path_factory.mktemp("log_probs")
    run(PROGRAM, [case for case in CASES if case.world == 2], drawn(), made)
    of_four = [case for case in CASES if case.world == 4]
    run(PROGRAM, [*of_four, NOT_CUT, REDUCED], drawn(), made)
    return made


@pytest.mark.parametrize("case", [*CASES, NOT_CUT], ids=str)
def test_values_and_gradients_are_those_of_float64(case: LogProbsCase, folder: Path) -> None:
    errors = worst_errors(case, folder)
    assert max(errors.values()) < 1e-6, errors


def test_sums_over_ranks_still_have_wrong_gradients(folder: Path) -> None:
    """The values are right, so a training run would show nothing. If this test fails, MindSpore no
    longer rewrites the gradient: update docs/internals/mindspore_all_reduce.md."""
    errors = worst_errors(REDUCED, folder)
    assert max(errors["log_probs"], errors["entropies"]) < 1e-6
    assert min(errors["weight"], errors["bias"]) > 0.1


def test_with_mindspore_own_cpu_kernels(tmp_path: Path) -> None:
    """Its Exp and LogSoftmax are good to 4e-6, which the entropies show."""
    case = LogProbsCase(1, 2, step=3, entropy=True)
    run(PROGRAM, [case], drawn(), tmp_path, exact_kernels=False)
    errors = worst_errors(case, tmp_path)
    assert errors.pop("entropies") < 5e-6
    assert max(errors.values()) < 1e-6, errors
