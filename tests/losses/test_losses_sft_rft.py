"""SFT and RFT by hand, and how they relate."""

from __future__ import annotations

import numpy as np
import pytest
from losses_helpers import batch_of, cell, reference


def test_sft_weighs_every_token_alike() -> None:
    # (1 + 2 + 3 + 6) / 4 = 3, whatever the segments and their rewards are.
    batch = batch_of([[([None, -1, -2, -3], 0), ([None, -6], 1)]], 7, places=2)
    loss, gradient = cell("sft", batch)
    assert reference("sft", batch) == pytest.approx(3.0)
    assert loss == pytest.approx(3.0, abs=1e-6)
    np.testing.assert_allclose(gradient, [[0, -0.25, -0.25, -0.25, 0, -0.25, 0]], atol=1e-7)


def test_rft_weighs_every_correct_response_alike_and_incorrect_ones_not_at_all() -> None:
    # Three responses weigh 1/3 each: −m = 2 (correct), 6 (correct), 4 (incorrect): (2 + 6) / 3.
    batch = batch_of([[([-1, -2, -3], 1), ([-6], 1), ([-4, -4], 0)]], 7, places=3)
    loss, gradient = cell("rft", batch)
    assert reference("rft", batch) == pytest.approx(8 / 3)
    assert loss == pytest.approx(8 / 3, abs=1e-6)
    np.testing.assert_allclose(gradient, [[*[-1 / 9] * 3, -1 / 3, 0, 0, 0]], atol=1e-7)


def test_rft_on_a_single_correct_segment_has_sfts_direction() -> None:
    batch = batch_of([[([None, -1.0, -0.2, -4.0], 1)]], 6, places=2)
    np.testing.assert_allclose(cell("rft", batch)[1], cell("sft", batch)[1], atol=1e-8)


def test_a_fractional_reward_weighs_rft_by_its_value() -> None:
    batch = batch_of([[([-2.0], 0.25)]], 1, places=1)
    assert cell("rft", batch)[0] == pytest.approx(0.5, abs=1e-7)
