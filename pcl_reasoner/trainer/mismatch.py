"""Measures how far the trainer's log-probs are from those that the sampler reported.

    token            a      b      c        gap = trainer - sampler
    trainer      -0.70  -0.10  -2.30
    sampler      -0.69  -0.10  -2.33        mismatch 0.0067, mismatch_abs 0.0133, mismatch_max 0.03

The two compute the same numbers with other kernels, and perhaps another precision. With equal
weights the gap is below 1e-4 in float32 on a CPU. A larger gap means that the responses were not
drawn by the policy that is trained.
"""

from typing import Any, Self

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import get_rank
from numpy.typing import NDArray

_SUMS, _MAX = "mismatch_sums", "mismatch_max"


class Mismatch(nn.Cell):
    """Adds up the gaps of a round's trained tokens, over its micro-steps."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.mismatch_sums = _table([0.0, 0.0, 0.0], _SUMS)
        self.mismatch_max = _table([0.0], _MAX)
        self.add, self.largest = ops.AssignAdd(), ops.ReduceMax()
        # In a pipeline the micro-batches of a step have no order: reading the maximum and assigning
        # a new one would lose some. This operator reads and writes at once.
        self.raise_max = ops.ScatterMax()
        self.first = Tensor([0], ms.int32)

    def shard(self, parallel_config: Any) -> Self:
        """Divide rows among data-parallel ranks, in semi-automatic parallel mode."""
        # Without a strategy MindSpore would split these few numbers over ranks.
        self.add.shard(((1,), (1,)))
        self.raise_max.shard(((1,), (1,), (1,)))
        # Tensor.max() would be the largest of the rank's own rows.
        self.largest.shard(((int(parallel_config.data_parallel), 1),))
        return self

    def construct(self, log_probs, sampled, trained):
        """[B, S] each; ``trained`` is 1 where a token is trained on -> the new sums."""
        gap = (log_probs - sampled) * trained
        size = ops.abs(gap)
        sums = ops.stack((gap.sum(), size.sum(), trained.sum()))
        largest = ops.stop_gradient(self.largest(size, (0, 1)).reshape((1,)))
        raised = self.raise_max(self.mismatch_max, self.first, largest)
        return ops.depend(self.add(self.mismatch_sums, ops.stop_gradient(sums)), raised)


def _table(values: list[float], name: str) -> Parameter:
    value = Tensor(values, ms.float32)
    return Parameter(value, name=name, requires_grad=False, parallel_optimizer=False)


def _tables(network: Any) -> dict[str, Parameter]:
    return {
        name: parameter
        for parameter in network.get_parameters()
        for name in (_SUMS, _MAX)
        if parameter.name.endswith(name)
    }


def reset_mismatch(network: Any) -> None:
    """Set the sums to 0, before a round."""
    for parameter in _tables(network).values():
        parameter.set_data(Tensor(np.zeros(parameter.shape, np.float32)))


def read_mismatch(network: Any) -> dict[str, float | None]:
    """Return a round's mean gap, mean absolute gap and largest gap; empty if not measured.

    Every rank must call it.
    """
    from pcl_reasoner.trainer.step import sum_over_ranks

    tables = _tables(network)
    if not tables:
        return {}
    gap, size, tokens = sum_over_ranks(tables[_SUMS].asnumpy()).tolist()
    largest = _max_over_ranks(tables[_MAX].asnumpy())
    return {
        "mismatch": gap / tokens if tokens else None,
        "mismatch_abs": size / tokens if tokens else None,
        "mismatch_max": largest if tokens else None,
    }


def _max_over_ranks(value: NDArray[np.float32]) -> float:
    """Return the largest of the data-parallel ranks' values, [1] float32 each."""
    from pcl_reasoner.trainer.step import data_parallel_ranks, sum_over_ranks

    if data_parallel_ranks() == 1:
        return float(value[0])
    # A CPU's AllReduce can only add: every rank puts its value at its own place.
    values = np.zeros(data_parallel_ranks(), np.float32)
    values[get_rank()] = value[0]
    return float(sum_over_ranks(values).max())
