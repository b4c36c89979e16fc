"""Losses with an old policy, by hand: TOPR, GSPO, GRPO and NFT."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from typing import Any

import numpy as np
import pytest
from losses_helpers import Segment, batch_of, cell, drawn_batch, reference, segment, with_log_probs

from pcl_reasoner.grade.rewards import advantages
from pcl_reasoner.losses.segments import Batch

UNCLIPPED = {"eps_low": 1e9, "eps_high": 1e9}
FROZEN_LOSSES = ("topr", "gspo", "grpo", "nft")


def moved(ratios: list[float], reward: float = 1.0, **others: Any) -> Segment:
    """A segment whose tokens are ``ratios`` times as likely as under the old policy."""
    old = [-4.0 - place for place in range(len(ratios))]
    values = [old + log(ratio) for old, ratio in zip(old, ratios, strict=True)]
    return segment(values, reward, old=old, **others)


def alone(made: Segment) -> Batch:
    return batch_of([[made]], len(made["values"]), places=1)


def test_topr_tapers_incorrect_responses_and_leaves_correct_ones() -> None:
    halved, doubled = [0.5, 0.5], [2.0, 2.0]
    # Means under the old policy are −4.5. Incorrect: a = 1/2, and its gradient a/T = 1/4.
    incorrect = alone(moved(halved, 0))
    loss, gradient = cell("topr", incorrect)
    assert loss == pytest.approx(0.5 * (log(0.5) - 4.5), abs=1e-6)
    # Held fixed: of e^(m − m₀)·m the gradient would be (1 + m)·a/T, with the other sign.
    np.testing.assert_allclose(gradient, [[0.25, 0.25]], atol=1e-6)
    # Likelier than it was: no more than 1.
    np.testing.assert_allclose(cell("topr", alone(moved(doubled, 0)))[1], [[0.5, 0.5]], atol=1e-6)
    for ratios in (halved, doubled):
        correct = cell("topr", alone(moved(ratios, 1)))[1]
        np.testing.assert_allclose(correct, [[-0.5, -0.5]], atol=1e-6)


def test_topr_by_the_whole_sequence() -> None:
    # e^(S − S₀) = (1/2)³ over three tokens, where the mean's ratio is 1/2.
    incorrect = alone(moved([0.5, 0.5, 0.5], 0))
    np.testing.assert_allclose(cell("topr", incorrect, sequence=1)[1], [[1 / 8] * 3], atol=1e-7)
    np.testing.assert_allclose(cell("topr", incorrect)[1], [[1 / 6] * 3], atol=1e-6)
    m = float(np.mean(incorrect.log_probs))
    assert reference("topr", incorrect, sequence=1) == pytest.approx(3 * m / 8)
    # 40 nats further away there is nothing left to push, and no underflow that is not a 0.
    gone = with_log_probs(incorrect, incorrect.log_probs - 40)
    assert not cell("topr", gone, sequence=1)[1].any()


def test_gspo_without_its_clip_is_opg_with_the_ratio_for_p() -> None:
    """d(−s·A)/dℓ = −A·(p/p₀)/T: with A = R·p₀ that is opg's −R·p/T."""
    batch = drawn_batch(2)
    gain = (2 * batch.rewards - 1) * np.exp(batch.old_log_probs_mean)
    scaled = replace(batch, advantages=gain.astype(np.float32))
    gradient = cell("gspo", scaled, **UNCLIPPED)[1]
    assert np.abs(gradient).max() > 0.01
    np.testing.assert_allclose(gradient, cell("opg", batch)[1], rtol=2e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.5, 1.0, -1.2, 0.0),  # likelier than the clip: no more of it
        (0.5, 1.0, -0.5, -0.5),
        (1.5, -1.0, 1.5, 1.5),
        (0.5, -1.0, 0.8, 0.0),  # less likely than the clip: no further
    ],
)
def test_gspos_clip(ratio: float, advantage: float, loss: float, slope: float) -> None:
    batch = alone(moved([ratio * 2, ratio / 2], advantage=advantage))
    eps = {"eps_low": 0.2, "eps_high": 0.2}
    value, gradient = cell("gspo", batch, **eps)
    assert value == pytest.approx(loss, rel=1e-5)
    assert reference("gspo", batch, **eps) == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(gradient, [[slope / 2] * 2], rtol=1e-5, atol=1e-7)


def test_grpo_clips_each_token_of_its_own() -> None:
    # A = 1: of 1.5 and 1.1 the first is over 1.28: −(1.28 + 1.1)/2, gradient 0 and −1.1/2.
    correct = alone(moved([1.5, 1.1], advantage=1.0))
    loss, gradient = cell("grpo", correct)
    assert loss == pytest.approx(-1.19, rel=1e-5)
    np.testing.assert_allclose(gradient, [[0, -0.55]], rtol=1e-5, atol=1e-7)
    # A = −2: of 0.5 and 1.5 the first is under 0.8: 2·(0.8 + 1.5)/2, gradient 0 and 2·1.5/2.
    incorrect = alone(moved([0.5, 1.5], advantage=-2.0))
    loss, gradient = cell("grpo", incorrect)
    assert loss == pytest.approx(2.3, rel=1e-5)
    np.testing.assert_allclose(gradient, [[0, 1.5]], rtol=1e-5, atol=1e-7)


def test_grpo_at_the_frozen_policy_is_the_advantage_times_the_mean() -> None:
    batch = drawn_batch(4)
    there = with_log_probs(batch, batch.old_log_probs)
    _, gradient = cell("grpo", there)
    per_token = batch.segment_weights * batch.advantages / np.maximum(batch.tokens(), 1)
    expected = np.where(batch.trained > 0, -batch.spread_to_tokens(per_token), 0)
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)


def test_a_group_with_equal_rewards_teaches_grpo_and_gspo_nothing() -> None:
    rewards = {("correct", 0): 1.0, ("correct", 1): 1.0, ("part", 0): 0.3, ("part", 1): 0.3}
    gains = advantages(rewards)
    made = [moved([1.1, 0.7], reward, advantage=gains[key]) for key, reward in rewards.items()]
    batch = batch_of([made], 8, places=4)
    for name in ("grpo", "gspo"):
        loss, gradient = cell(name, batch)
        assert loss == 0.0 and not gradient.any()


def test_nft_by_hand() -> None:
    """q = 1/4. Correct: −(3/4)·ln ρ. Incorrect, ρ = 1/2: x = (1 − 1/8)/(3/4) = 7/6."""
    correct = alone(moved([0.5], 1, pass_rate=0.25))
    loss, gradient = cell("nft", correct)
    assert loss == pytest.approx(0.75 * log(2), rel=1e-5)
    np.testing.assert_allclose(gradient, [[-0.75]], rtol=1e-5)
    incorrect = alone(moved([0.5], 0, pass_rate=0.25))
    loss, gradient = cell("nft", incorrect)
    assert loss == pytest.approx(-0.75 * log(7 / 6), rel=1e-5)
    # (3/4)·(1/x)·(q/(1 − q))·ρ = (1/8)/(7/6)
    np.testing.assert_allclose(gradient, [[3 / 28]], rtol=1e-5)


@pytest.mark.parametrize("ratio", [2.0, 8.0])
def test_nfts_clamp_keeps_the_gradient(ratio: float) -> None:
    """An incorrect token that became likelier, x 2/3, then −4/3: the loss stops, the push does
    not."""
    batch = alone(moved([ratio], 0, pass_rate=0.25))
    loss, gradient = cell("nft", batch)
    assert loss == pytest.approx(0.0, abs=1e-6)
    assert reference("nft", batch) == pytest.approx(0.0, abs=1e-6)
    # (3/4)·(1/ε)·(q/(1 − q))·ρ = ρ/4
    np.testing.assert_allclose(gradient, [[ratio / 4]], rtol=1e-5)
    # With ε = 1/4 it is four times that, and the loss is −(3/4)·ln(1/4) where x is below.
    steep, push = cell("nft", batch, eps_incorrect=0.25)
    below = 1 / 4 if ratio == 8 else 2 / 3
    assert steep == pytest.approx(-0.75 * log(below), rel=1e-5)
    np.testing.assert_allclose(push, [[ratio / 4 / below]], rtol=1e-5)


def test_nft_at_the_frozen_policy_weighs_by_reward_less_pass_rate() -> None:
    for reward, rate, expected in ((1, 0.25, -0.75), (0, 0.25, 0.25), (1, 1, -0.02), (0, 0, 0.02)):
        batch = alone(moved([1.0, 1.0], reward, pass_rate=rate))
        np.testing.assert_allclose(cell("nft", batch)[1], [[expected / 2] * 2], rtol=1e-4)


@pytest.mark.parametrize("name", [*FROZEN_LOSSES, "grpo_on_policy"])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_policy_far_from_the_frozen_one_gives_no_infinity(name: str, reward: float) -> None:
    for values, old in (([-0.1, -0.1], [-300.0, -0.1]), ([-300.0, -300.0], [-0.1, -0.1])):
        batch = alone(segment(values, reward, old=old, pass_rate=0.5))
        loss, gradient = cell(name, batch)
        assert np.isfinite(loss) and np.isfinite(gradient).all()
        assert np.isfinite((gradient.astype(np.float32) ** 2).sum(dtype=np.float32))
    assert exp(20) ** 2 < np.finfo(np.float32).max


def test_columns_of_untrained_places_may_hold_anything() -> None:
    """Padding has pass rate, advantage and old mean 0 and log-probs that mean nothing."""
    batch = drawn_batch(6)
    other = np.where(batch.trained > 0, batch.old_log_probs, np.float32(400.0))
    for name in FROZEN_LOSSES:
        before, after = cell(name, batch), cell(name, replace(batch, old_log_probs=other))
        assert before[0] == after[0]
        np.testing.assert_array_equal(before[1], after[1])
