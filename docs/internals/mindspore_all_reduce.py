"""A wrong gradient in MindSpore's semi-automatic parallel mode; see mindspore_all_reduce.md.

    msrun --worker_num 2 --local_worker_num 2 docs/internals/mindspore_all_reduce.py

Two ranks hold one column each of x [4, 2]. The network is Σ m (x − log Σ e^x), a log-softmax over
columns with weights m, so its gradient is m − softmax(x) Σ m. Nothing but MindSpore is needed.
"""

import sys

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import get_rank, init

COLUMNS_PER_RANK = int(sys.argv[1]) if len(sys.argv) > 1 else 1
"""With 2 the gradient is right: then x and its sum differ in shape, and nothing is rewritten."""

init()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", full_batch=True)

rng = np.random.default_rng(0)
x = rng.standard_normal((4, 2 * COLUMNS_PER_RANK)).astype(np.float32)
m = rng.standard_normal(x.shape).astype(np.float32)


class Network(nn.Cell):
    """Σ m (x − log Σ e^x), every operator cut by hand."""

    def __init__(self):
        super().__init__()
        self.x = Parameter(Tensor(x), name="x")
        self.exp = ops.Exp().shard(((1, 2),))
        self.sum = ops.ReduceSum(keep_dims=True).shard(((1, 2),))
        self.log = ops.Log().shard(((1, 1),))
        self.multiply = ops.Mul().shard(((1, 2), (1, 2)))
        self.subtract = ops.Sub().shard(((1, 2), (1, 1)))
        self.total = ops.ReduceSum().shard(((1, 2),))

    def construct(self, m):
        """Weights m [4, columns] -> scalar."""
        log_sum = self.log(self.sum(self.exp(self.x), -1))
        return self.total(self.multiply(self.subtract(self.x, log_sum), m))


network = Network()
optimizer = nn.Momentum(network.trainable_params(), learning_rate=1.0, momentum=0.5)
nn.TrainOneStepCell(network, optimizer).set_train()(Tensor(m))
got = optimizer.moments[0].asnumpy()  # the gradient, after one step

exponents = np.exp(x.astype(np.float64))
shares = exponents / exponents.sum(-1, keepdims=True)
whole = m - shares * m.sum(-1, keepdims=True)
expected = np.split(whole, 2, axis=1)[get_rank()]
error = np.abs(got - expected).max() / np.abs(whole).max()
print(f"rank {get_rank()}: error {error:.1e}")
print(f"got\n{got}\nexpected\n{expected}")
