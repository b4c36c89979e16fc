"""A step's figures: by hand, and by every loss's own gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from losses_helpers import ORDER, batch_of, cell, drawn_batch, graph_mode, segment, variant
from mindspore import Tensor, nn

from pcl_reasoner.losses import build_loss
from pcl_reasoner.losses.segments import SegmentMeans
from pcl_reasoner.trainer.figures import COLUMNS, VERDICTS, StepFigures


class Figures(nn.Cell):
    """As the model makes them; every token's entropy is 2."""

    def __init__(self, name: str, places: int) -> None:
        super().__init__()
        self.means = SegmentMeans(places)
        loss, parameters = variant(name)
        cell = build_loss(loss, places, parameters)
        self.figures = StepFigures(loss, parameters, cell, places)

    def construct(
        self,
        log_probs,
        rewards,
        segment_weights,
        token_weights,
        trained,
        segment_ids,
        pass_rates,
        advantages,
        old_log_probs,
        old_log_probs_mean,
    ):
        mean, tokens = self.means(log_probs, trained, segment_ids)
        return self.figures(
            tokens,
            0.0 * log_probs + 2.0,
            log_probs,
            mean,
            rewards,
            segment_weights,
            token_weights,
            trained,
            segment_ids,
            pass_rates,
            advantages,
            old_log_probs,
            old_log_probs_mean,
        )


def figures_of(name: str, batch: Any) -> dict[str, dict[str, float]]:
    graph_mode()
    made = Figures(name, batch.rewards.shape[1])
    found = made(*(Tensor(getattr(batch, column)) for column in ORDER)).asnumpy()
    rows = [dict(zip(COLUMNS, row.tolist(), strict=True)) for row in found]
    return dict(zip(VERDICTS, rows, strict=True))


def test_sums_by_hand_and_clips() -> None:
    """GRPO: A = 1 and ρ = e (beyond 1.28: clipped), 1, 1; A = −1 at ρ = 1; a group of equals."""
    correct = segment([None, -1.0, -2.0, -3.0], 1.0, advantage=1.0, old=[None, -2.0, -2.0, -3.0])
    incorrect = segment([None, -4.0], 0.0, advantage=-1.0, old=[None, -4.0])
    equal = segment([None, -1.0, -1.0], 0.0, advantage=0.0, old=[None, -1.0, -1.0])
    found = figures_of("grpo", batch_of([[correct, incorrect], [equal]], length=7, places=3))
    # A third each in the mean; of the correct one's three tokens two have a gradient of 1/9.
    assert found["correct"] == pytest.approx(
        {
            "count": 1,
            "tokens": 3,
            "m": -2.0,
            "p": np.exp(-2.0),
            "weight": 2 / 9,
            "entropy": 6.0,
            "no_advantage": 0,
            "clipped": 1,
        },
        rel=1e-5,
    )
    assert found["incorrect"] == pytest.approx(
        {
            "count": 2,
            "tokens": 3,
            "m": -5.0,
            "p": np.exp(-4.0) + np.exp(-1.0),
            "weight": 1 / 3,
            "entropy": 6.0,
            "no_advantage": 1,
            "clipped": 0,
        },
        rel=1e-5,
    )


def test_on_policy_nothing_can_be_clipped() -> None:
    """No figure of clipped tokens: a 0 would say that there was a clip."""
    for name, has_clip in (("grpo", True), ("grpo_on_policy", False)):
        defined = Figures(name, 3).figures.defined
        assert defined == {"no_advantage": True, "clipped": has_clip, "weight": True}


@pytest.mark.parametrize("name", ["opg", "sft", "asymre", "gspo", "nft", "grpo_on_policy"])
def test_a_weight_is_the_sum_of_the_losss_own_gradient(name: str) -> None:
    """Losses that go through means, through tokens, and through ratios of both."""
    batch = drawn_batch(seed=3)
    found = figures_of(name, batch)
    _, gradient = cell(name, batch)
    expected = dict.fromkeys(VERDICTS, 0.0)
    for row, place in np.ndindex(*batch.rewards.shape):
        chosen = (batch.segment_ids[row] == place) & (batch.trained[row] > 0)
        verdict = "correct" if batch.rewards[row, place] >= 0.5 else "incorrect"
        expected[verdict] += float(np.abs(gradient[row][chosen]).sum())
    for verdict in VERDICTS:
        assert found[verdict]["weight"] == pytest.approx(expected[verdict], rel=1e-5)
