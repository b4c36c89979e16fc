"""Signed likelihood, AsymRE and DFT by hand."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from losses_helpers import batch_of, cell, reference, segment

HALF, QUARTER = log(1 / 2), log(1 / 4)


def test_signed_nll_weighs_incorrect_responses_less() -> None:
    # m = −2 (correct) and −3 (incorrect), each weighing 1/2: (2 − 0.8 · 3) / 2 = −0.2.
    batch = batch_of([[([None, -1.0, -3.0], 1), ([None, -3.0], 0)]], 6, places=2)
    loss, gradient = cell("signed_nll", batch)
    assert reference("signed_nll", batch) == pytest.approx(-0.2)
    assert loss == pytest.approx(-0.2, abs=1e-6)
    np.testing.assert_allclose(gradient, [[0, -0.25, -0.25, 0, 0.4, 0]], atol=1e-7)
    # Three quarters correct: 3/4 · 1 − 1/4 · 0.8 = 0.55 of an imitation.
    part = batch_of([[([-2.0], 0.75)]], 1, places=1)
    assert cell("signed_nll", part)[0] == pytest.approx(1.1, abs=1e-6)


def test_signed_nll_takes_its_weights() -> None:
    batch = batch_of([[([-1.0], 1), ([-1.0], 0)]], 2, places=2)
    gradient = cell("signed_nll", batch, weight_correct=0.5, weight_incorrect=0.25)[1]
    np.testing.assert_allclose(gradient, [[-0.25, 0.125]], atol=1e-7)


def test_signed_nll_without_the_incorrect_is_rft() -> None:
    batch = batch_of([[([-1.0, -0.5], 1), ([-1.0], 0), ([-3.0], 0.5)]], 4, places=3)
    alone = cell("signed_nll", batch, weight_incorrect=0.0)
    assert alone[0] == pytest.approx(cell("rft", batch)[0], abs=1e-7)
    np.testing.assert_allclose(alone[1], cell("rft", batch)[1], atol=1e-7)


def test_asymres_baseline_is_the_groups_mean_and_a_little_less() -> None:
    """One correct of four: V = 1/4 − δ. By −(r − V): −0.85 and 3 × 0.15, over four and T = 1."""
    group = [segment([-1.0], reward, pass_rate=0.25) for reward in (1, 0, 0, 0)]
    batch = batch_of([group], 4, places=4)
    gradient = cell("asymre", batch)[1]
    np.testing.assert_allclose(gradient * 4, [[-0.85, 0.15, 0.15, 0.15]], atol=1e-6)
    # (−0.85 + 3 · 0.15) · (−1) / 4
    assert reference("asymre", batch) == pytest.approx(0.1)
    # At δ = 0 correct and incorrect of a group cancel; that is where its authors see it collapse.
    centred = cell("asymre", batch, delta=0.0)[1]
    assert centred.sum() == pytest.approx(0, abs=1e-7)
    np.testing.assert_allclose(centred * 4, [[-0.75, 0.25, 0.25, 0.25]], atol=1e-6)


def test_dft_weighs_a_token_by_its_probability() -> None:
    # Four trained tokens. Of the correct response: 1/2 · ln 2 and 1/4 · ln 4, together ln 2.
    batch = batch_of([[([None, HALF, QUARTER], 1), ([None, HALF, HALF], 0)]], 7, places=2)
    loss, gradient = cell("dft", batch)
    assert reference("dft", batch) == pytest.approx(log(2) / 4)
    assert loss == pytest.approx(log(2) / 4, abs=1e-6)
    # The weight is held fixed: −π/4, and not −π(1 + ln π)/4.
    np.testing.assert_allclose(gradient, [[0, -1 / 8, -1 / 16, 0, 0, 0, 0]], atol=1e-7)


def test_a_sure_token_pulls_in_dft_as_it_does_in_sft() -> None:
    batch = batch_of([[([0.0, 0.0], 1)]], 2, places=1)
    np.testing.assert_allclose(cell("dft", batch)[1], cell("sft", batch)[1], atol=1e-8)
