"""Long responses and half precision: what must not underflow, and what overflows on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from losses_helpers import batch_of, cell, graph_mode, segment, torch_loss
from mindspore import Parameter, Tensor, nn, ops

from pcl_reasoner.losses import VARIANTS, build_loss
from pcl_reasoner.losses.segments import Batch, SegmentMeans, TokenLogProbs

LONG = 40_000
GLOBAL_SEGMENTS = 128
"""V1.5's global batch: a response weighs 1/128."""


def long_batch(reward: float) -> Batch:
    """One response of 40 000 tokens, one of 128; log-probs like those of a trained policy."""
    rng = np.random.default_rng(3)
    values = -rng.exponential(0.4, LONG)
    old = values + rng.normal(0, 0.05, LONG)
    made = segment(
        values.tolist(),
        reward,
        old=old.tolist(),
        pass_rate=0.4,
        advantage=1.2 if reward else -0.8,
    )
    batch = batch_of([[made]], LONG, places=1)
    share = np.float32(1 / GLOBAL_SEGMENTS)
    return replace(
        batch,
        segment_weights=batch.segment_weights * share,
        token_weights=batch.token_weights * share,
    )


@pytest.mark.parametrize("name", sorted(VARIANTS))
@pytest.mark.parametrize("reward", [1.0, 0.0])
def test_40_000_tokens_of_a_global_batch(name: str, reward: float) -> None:
    """p = exp(m) and 1/T in float32: every token keeps its gradient, of about 1e-7."""
    batch = long_batch(reward)
    loss, gradient = cell(name, batch)
    expected, theirs = torch_loss(name, batch)
    assert loss == pytest.approx(expected, rel=1e-4, abs=1e-8)
    np.testing.assert_allclose(gradient, theirs, rtol=3e-4)
    np.testing.assert_array_equal(gradient == 0, theirs == 0)


class FromLogits(nn.Cell):
    """OPG of one response from logits, times a loss scale."""

    def __init__(self) -> None:
        super().__init__()
        self.token_log_probs = TokenLogProbs()
        self.means = SegmentMeans(1)
        self.loss = build_loss("opg", 1)

    def construct(self, logits, labels, segment_ids, rewards, weights, scale):
        log_probs = self.token_log_probs(logits, labels)
        mean, _ = self.means(log_probs, ops.ones_like(log_probs), segment_ids)
        return self.loss(log_probs, mean, rewards, weights) * scale


def half_gradient(scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The gradient by float16 logits under a loss scale, and the true one times that scale."""
    graph_mode()
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1, (LONG, 8)).astype(np.float16)
    labels = rng.integers(0, 8, (1, LONG)).astype(np.int32)
    given = (
        Tensor(labels),
        Tensor(np.zeros((1, LONG), np.int32)),
        Tensor([[1.0]], ms.float32),
        Tensor([[1 / GLOBAL_SEGMENTS]], ms.float32),
        Tensor(scale, ms.float32),
    )
    gradient = ms.grad(FromLogits())
    half = gradient(Tensor(logits), *given)
    assert half.dtype == ms.float16
    single = gradient(Tensor(logits.astype(np.float32)), *given)
    return half.asnumpy().astype(np.float64), single.asnumpy()


def test_half_precision_needs_its_loss_scale_at_40_000_tokens() -> None:
    """p/(T·128) is about 2e-8, which float16 rounds to 0. V1.5's scale is 4096."""
    without, true = half_gradient(1.0)
    assert true.all() and not without.any()
    scaled, true = half_gradient(4096.0)
    large = np.abs(true) > 1e-5
    assert large.mean() > 0.3
    np.testing.assert_allclose(scaled[large], true[large], rtol=1e-2)


class HalfModel(nn.Cell):
    """Weights in float32, logits in float16, OPG."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.eye(4, 8), ms.float32), name="weight")
        self.from_logits = FromLogits()

    def construct(self, inputs, labels, segment_ids, rewards, weights):
        logits = ops.matmul(inputs, self.weight).astype(ms.float16)
        return self.from_logits(logits, labels, segment_ids, rewards, weights, 1.0)


def train_step(first_scale: float) -> tuple[Any, HalfModel]:
    """Our step with a dynamic loss scale that halves where a step overflows."""
    from pcl_reasoner.worker.entry import import_mindformers

    import_mindformers()
    from mindspore.nn import DynamicLossScaleUpdateCell

    from pcl_reasoner.trainer.step import PclTrainOneStepCell

    model = HalfModel()
    scale = DynamicLossScaleUpdateCell(first_scale, scale_factor=2, scale_window=1000)
    optimizer = nn.SGD(model.trainable_params(), learning_rate=1.0)
    step = PclTrainOneStepCell(model, optimizer, use_clip_grad=True, scale_sense=scale)
    step.set_train(True)
    return step, model


@pytest.mark.slow
def test_a_step_that_overflows_in_half_precision_is_skipped_and_the_scale_halved() -> None:
    graph_mode()
    first = 2.0**24
    step, model = train_step(first)
    before = model.weight.asnumpy().copy()
    rng = np.random.default_rng(2)
    given = (
        Tensor(rng.normal(0, 1, (6, 4)).astype(np.float32)),
        Tensor(rng.integers(0, 8, (1, 6)).astype(np.int32)),
        Tensor(np.zeros((1, 6), np.int32)),
        Tensor([[1.0]], ms.float32),
        Tensor([[1.0]], ms.float32),
    )
    scales, skipped = [], []
    for _ in range(12):
        loss, overflow, scale, *_ = step(*given)
        assert np.isfinite(loss.asnumpy())
        scales.append(float(scale.asnumpy()))
        skipped.append(bool(overflow.asnumpy()))
        if skipped[-1]:
            np.testing.assert_array_equal(model.weight.asnumpy(), before)
        else:
            break
    # 2^24 times a gradient of about 1/50 is beyond float16's 65504; a few halvings are not.
    assert skipped == [True] * (len(skipped) - 1) + [False]
    halvings = len(skipped) - 1
    assert halvings > 0
    # What is given is the next step's scale.
    assert scales == [first / 2 ** min(place + 1, halvings) for place in range(len(scales))]
    assert np.isfinite(model.weight.asnumpy()).all()
    assert (model.weight.asnumpy() != before).any()
