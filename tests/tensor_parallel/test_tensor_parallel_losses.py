"""Every loss by the trained model on 2 data x 2 tensor ranks: gradients and figures of float64."""

from __future__ import annotations

from pathlib import Path

import pytest
from losses_cases import PROGRAM, LossCase, drawn, worst_errors
from rank_cases import run

from pcl_reasoner.losses import VARIANTS

pytestmark = pytest.mark.slow

REDUCED = LossCase(2, 2, reduced=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with every rank's arrays."""
    made = tmp_path_factory.mktemp("losses")
    cases = [*(LossCase(2, 2, loss=loss) for loss in VARIANTS), REDUCED]
    run(PROGRAM, cases, drawn()[0], made)
    return made


@pytest.mark.parametrize("loss", sorted(VARIANTS))
def test_gradients_and_figures_are_those_of_float64(loss: str, folder: Path) -> None:
    """Every rank has the loss and figures of the whole batch, and its slice of the gradients."""
    errors = worst_errors(LossCase(2, 2, loss=loss), folder)
    # The loss is a sum of larger numbers of both signs.
    assert errors.pop("loss") < 3e-6
    assert max(errors.values()) < 1e-6, errors


def test_sums_over_ranks_have_the_right_loss_and_wrong_gradients(folder: Path) -> None:
    errors = worst_errors(REDUCED, folder)
    assert max(errors["loss"], errors["figures"]) < 3e-6
    assert min(errors["weight"], errors["hidden"]) > 0.05
