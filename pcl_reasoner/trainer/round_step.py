"""The training step of on-policy training: gradients of several micro-steps, then one update.

    micro-step 0   totals = g0              last_of_round 0
    micro-step 1   totals = g0 + g1         last_of_round 1
                   clip the totals, update the weights, totals = 0

The loss weights of a round's responses come from the loader, so the totals are the gradient of the
mean over the round. PclRounds (round_callbacks.py) sets last_of_round before each micro-step.
"""

from typing import Any

import mindspore as ms
from mindformers.core.clip_grad import ClipGradNorm
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindformers.wrapper.wrapper import (
    MFPipelineWithLossScaleCell,
    grad_scale,
    shard_grad_scale,
)
from mindspore import Parameter, Tensor, nn, ops

from pcl_reasoner.trainer.step import PclTrainOneStepCell

TOTALS = "round_gradients"
"""Prefix of the parameters with the totals; checkpoints do not have them."""
LAST_OF_ROUND = "last_of_round"

_unscale = ops.MultitypeFuncGraph("pcl_unscale")
_add = ops.MultitypeFuncGraph("pcl_add")
_read = ops.MultitypeFuncGraph("pcl_read")
_clear = ops.MultitypeFuncGraph("pcl_clear")


@_unscale.register("Tensor", "Tensor")
def _unscale_tensor(scale, gradient):
    # Not a division: see _read_tensor.
    return gradient.astype(ms.float32) * ops.reciprocal(scale)


@_add.register("Tensor", "Tensor")
def _add_tensor(total, gradient):
    return ops.assign_add(total, gradient)


@_read.register("Tensor", "Tensor", "Tensor")
def _read_tensor(after, total, gradient):
    # The total does not depend on this micro-step's gradient alone. But where operators are split
    # over ranks, MindSpore follows the gradient to ClipGradNorm, through Depend and Mul only, and
    # there divides the sum of squares by the number of ranks that hold the same gradient. Without
    # this Depend it finds the totals alone: with N data-parallel ranks the norm is √N times larger.
    return ops.depend(ops.depend(total, after), gradient)


@_clear.register("Tensor", "Tensor")
def _clear_tensor(after, total):
    return ops.assign(total, ops.depend(ops.zeros_like(total), after))


class RoundUpdate(nn.Cell):
    """Adds gradients; at the last micro-step of a round it updates the weights once.

    A round whose gradient norm is not finite is skipped. The norm covers all ranks, so all ranks
    decide alike.

    Args:
        optimizer: MindFormers' optimizer, with its learning rate.
        reducer: Averages gradients over data-parallel ranks, where MindSpore does not do it itself.
        max_norm: Largest gradient norm of a round.
    """

    def __init__(self, optimizer: Any, reducer: Any, max_norm: float) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.reducer = optimizer, reducer
        self.clip = ClipGradNorm(max_norm=max_norm)
        self.totals = optimizer.parameters.clone(prefix=TOTALS, init="zeros")
        self.last = Parameter(Tensor(0, ms.int32), name=LAST_OF_ROUND, requires_grad=False)
        self.hyper_map = ops.HyperMap()
        self.no_norm = Tensor([0.0], ms.float32)
        self.no_overflow = Tensor([False])

    def construct(self, loss, gradients):
        """A scalar loss and a gradient per parameter -> loss, overflow [1], norm [1]."""
        loss = ops.depend(loss, self.hyper_map(_add, self.totals, gradients))
        norm, overflow = self.no_norm, self.no_overflow
        if self.last == 1:
            totals = self.hyper_map(ops.partial(_read, loss), self.totals, gradients)
            totals, norm = self.clip(self.reducer(totals))
            norm = norm.reshape((1,))
            overflow = ops.logical_not(ops.isfinite(norm))
            if not overflow:
                loss = ops.depend(loss, self.optimizer(totals))
            loss = ops.depend(loss, self.hyper_map(ops.partial(_clear, loss), self.totals))
        return loss, overflow, norm


@MindFormerRegister.register(MindFormerModuleType.WRAPPER)
class PclRoundStepCell(PclTrainOneStepCell):
    """The step without a pipeline."""

    def __init__(self, network: Any, optimizer: Any, max_grad_norm: float, **kwargs: Any) -> None:
        super().__init__(network, optimizer, max_grad_norm=max_grad_norm, **kwargs)
        self.update = RoundUpdate(optimizer, self.grad_reducer, max_grad_norm)

    def construct(self, *inputs):
        """One micro-step -> loss, overflow, loss scale, learning rate, gradient norm."""
        rate = self.learning_rate(self.optimizer.global_step).reshape(())
        loss, gradients, factor = self.grads_for_legacy(self.scale_sense, *inputs)
        scale = self.scale_sense * factor
        gradients = self.hyper_map(ops.partial(_unscale, scale), gradients)
        loss = ops.depend(loss, rate)  # before the update moves the step
        loss, overflow, norm = self.update(loss, gradients)
        return loss, overflow, self.scale_sense, rate, norm


class PclRoundPipelineCell(MFPipelineWithLossScaleCell):
    """The step of a pipeline, or of gradient accumulation in semi-automatic parallel mode.

    MindFormers' class adds the gradients of the micro-batches of one call. This class adds those
    of several calls.
    """

    def __init__(self, network: Any, optimizer: Any, max_grad_norm: float, **kwargs: Any) -> None:
        super().__init__(network, optimizer, max_grad_norm=max_grad_norm, **kwargs)
        self.update = RoundUpdate(optimizer, self.grad_reducer, max_grad_norm)

    @ops.composite.add_flags(has_effect=True)
    def construct(self, *inputs):
        """One micro-step -> loss, overflow, loss scale, learning rate, gradient norm."""
        rate = self.learning_rate(self.optimizer.global_step).reshape(())
        loss, gradients, factor = self.grads_for_legacy(self.scale_sense, *inputs)
        scale = self.scale_sense * self.degree
        if self.opt_shard:
            gradients = self.grad_reducer(gradients)
            taken = ops.partial(shard_grad_scale, scale, factor)
            gradients = self.hyper_map(taken, gradients, self.accu_grads)
        else:
            taken = ops.partial(grad_scale, scale, factor)
            gradients = self.hyper_map(taken, gradients, self.grad_reducer(self.accu_grads))
        loss = ops.depend(loss, rate)  # before the update moves the step
        loss, overflow, norm = self.update(loss, gradients)
        return loss, overflow, self.scale_sense.value(), rate, norm
