"""GRPO of responses that the policy itself sampled: by hand, and against GRPO with a ratio of 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from losses_helpers import Segment, batch_of, cell, reference, segment

from pcl_reasoner.losses import LOSSES
from pcl_reasoner.losses.columns import ADVANTAGES, OLD_LOG_PROBS
from pcl_reasoner.losses.segments import Batch

ON_POLICY = "grpo_on_policy"


def test_by_hand() -> None:
    """w = 1/3. A = 1.5 over three tokens, −0.5 over two, 0 over one: −(1.5 − 0.5 + 0)/3."""
    long = segment([None, -1.0, -2.0, -0.5], 1.0, advantage=1.5)
    short = segment([None, None, -0.1, -7.0], 0.0, advantage=-0.5)
    equal = segment([-3.0], 0.0, advantage=0.0)
    batch = batch_of([[long, short], [equal]], length=9, places=3)
    loss, gradient = cell(ON_POLICY, batch)
    assert loss == pytest.approx(-1 / 3, rel=1e-6)
    assert reference(ON_POLICY, batch) == pytest.approx(-1 / 3)
    # −w·A/T for each trained token: −1.5/9 and 0.5/6.
    expected = np.zeros((2, 9))
    expected[0, 1:4], expected[0, 6:8] = -1 / 6, 1 / 12
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def random_batch(seed: int) -> Batch:
    """Three rows of one to four segments and padding; about a third of the advantages are 0."""
    rng = np.random.default_rng(seed)

    def draw() -> Segment:
        response = int(rng.integers(0, 7))
        values = (-rng.exponential(1.0, response)).tolist()
        advantage = float(rng.choice([0.0, rng.normal(), rng.normal()]))
        prompt = [None] * int(rng.integers(1, 3))
        return segment([*prompt, *values], float(rng.integers(0, 2)), advantage=advantage)

    rows = [[draw() for _ in range(count)] for count in rng.integers(1, 5, 3)]
    # One token is trained on for sure, in a row that is not full.
    rows[0][0] = segment([None, -0.7, -1.9], 1.0, advantage=0.8)
    return batch_of(rows, length=36, places=4)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_grpo_whose_old_log_probs_are_its_own(seed: int) -> None:
    batch = random_batch(seed)
    off_policy = replace(batch, old_log_probs=batch.log_probs)
    expected, expected_gradient = cell("grpo", off_policy)
    loss, gradient = cell(ON_POLICY, batch)
    assert np.abs(expected_gradient).max() > 0.01
    assert loss == pytest.approx(expected, rel=1e-6, abs=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-6, atol=1e-6)
    assert reference(ON_POLICY, batch) == pytest.approx(reference("grpo", off_policy), rel=1e-12)


def test_old_log_probs_are_not_read_and_no_token_is_clipped() -> None:
    batch = random_batch(6)
    expected, expected_gradient = cell(ON_POLICY, batch)
    without = {
        name: np.full_like(getattr(batch, name), np.nan)
        for name in ("old_log_probs", "old_log_probs_mean")
    }
    # With these limits, a token would lose its gradient at the slightest change of its ratio.
    loss, gradient = cell(ON_POLICY, replace(batch, **without), eps_low=0.0, eps_high=0.0)
    assert loss == expected
    np.testing.assert_array_equal(gradient, expected_gradient)


def test_what_it_needs() -> None:
    grpo = LOSSES["grpo"]
    for off_policy in ({}, {"on_policy": 0.0}):
        assert grpo.needs(off_policy) == (ADVANTAGES, OLD_LOG_PROBS)
        assert grpo.clips(off_policy)
    assert grpo.needs({"on_policy": 1.0}) == (ADVANTAGES,)
    assert not grpo.clips({"on_policy": 1.0})
    assert [name for name, loss in LOSSES.items() if loss.clips({})] == ["gspo", "grpo"]
