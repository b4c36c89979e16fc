"""OPG: hand-worked numbers, bounds, and how its gradient fades."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from losses_helpers import batch_of, cell, drawn_batch, reference

from pcl_reasoner.losses.segments import Batch

HALF, QUARTER, EIGHTH = log(1 / 2), log(1 / 4), log(1 / 8)


def one_segment(log_probs: list[float], reward: float) -> Batch:
    return batch_of([[([None, *log_probs], reward)]], len(log_probs) + 1, places=1)


def test_a_correct_and_a_incorrect_response_by_hand() -> None:
    # Correct: p = sqrt(1/2 · 1/8) = 1/4, loss 3/4. Incorrect: p = 1/2, loss 1/2. Their mean is 5/8.
    batch = batch_of([[([None, HALF, EIGHTH], 1), ([None, HALF], 0)]], 6, places=2)
    loss, gradient = cell("opg", batch)
    assert reference("opg", batch) == pytest.approx(0.625, abs=1e-7)
    assert loss == pytest.approx(0.625, abs=1e-6)
    # −R · p/T · 1/2: correct −(1/4)/2/2 = −1/16 a token, incorrect +(1/2)/1/2 = 1/4.
    expected = [[0, -1 / 16, -1 / 16, 0, 1 / 4, 0]]
    np.testing.assert_allclose(gradient, expected, atol=1e-7)


def test_a_fractional_reward_is_kept() -> None:
    # r = 1/4, p = 1/8: loss 1/4 · 7/8 + 3/4 · 1/8 = 5/16; R = −1/2, gradient 1/2 · (1/8)/2 = 1/32.
    loss, gradient = cell("opg", one_segment([EIGHTH, EIGHTH], 0.25))
    assert loss == pytest.approx(5 / 16, abs=1e-6)
    np.testing.assert_allclose(gradient, [[0, 1 / 32, 1 / 32]], atol=1e-7)


def test_the_loss_is_bounded_by_0_and_1() -> None:
    for seed in range(20):
        batch = drawn_batch(seed)
        assert 0.0 <= reference("opg", batch) <= 1.0
    sure = one_segment([0.0, 0.0], 1)
    assert cell("opg", sure)[0] == pytest.approx(0.0, abs=1e-7)
    hopeless = one_segment([-80.0, -90.0], 1)
    assert cell("opg", hopeless)[0] == pytest.approx(1.0, abs=1e-7)


def test_the_gradient_fades_on_incorrect_responses_that_have_become_unlikely() -> None:
    p = [exp(-m) for m in (0.5, 2.0, 8.0)]
    gradients = [cell("opg", one_segment([-m, -m], 0))[1][0, 1:] for m in (0.5, 2.0, 8.0)]
    for expected, gradient in zip(p, gradients, strict=True):
        np.testing.assert_allclose(gradient, [expected / 2] * 2, rtol=1e-5)
    # SFT with its sign turned would push all three alike, without end.
    gone = cell("opg", one_segment([-200.0, -200.0], 0))[1]
    assert not gone.any()


def test_an_unlikely_correct_response_weighs_less_than_a_likely_one() -> None:
    likely = cell("opg", one_segment([HALF, HALF], 1))[1][0, 1]
    unlikely = cell("opg", one_segment([EIGHTH, EIGHTH], 1))[1][0, 1]
    assert likely / unlikely == pytest.approx(4.0, rel=1e-5)


def test_a_reward_is_taken_from_its_own_segment() -> None:
    segments = [([None, QUARTER], 1.0), ([None, HALF], 0.0)]
    swapped = [([None, QUARTER], 0.0), ([None, HALF], 1.0)]
    first, second = (batch_of([row], 4, places=2) for row in (segments, swapped))
    # 1/2 · (3/4 + 1/2) against 1/2 · (1/4 + 1/2)
    assert cell("opg", first)[0] == pytest.approx(0.625, abs=1e-6)
    assert cell("opg", second)[0] == pytest.approx(0.375, abs=1e-6)


def test_40_000_tokens() -> None:
    rng = np.random.default_rng(3)
    values = (-rng.exponential(1.5, 40_000)).astype(np.float32).tolist()
    batch = one_segment(values, 1)
    p = exp(float(np.mean(np.asarray(values, np.float64))))
    loss, gradient = cell("opg", batch)
    assert loss == pytest.approx(1 - p, rel=1e-5)
    np.testing.assert_allclose(gradient[0, 1:], -p / 40_000, rtol=1e-4)
