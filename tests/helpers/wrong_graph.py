"""A Cell that MindSpore cannot compile: a product of matrices that do not fit."""

import mindspore
from mindspore import nn, ops


class Product(nn.Cell):
    """The product of two matrices."""

    def construct(self, left, right):
        return ops.matmul(left, right)


def compile_it() -> None:
    """Raise MindSpore's error, which leaves rank_0/om/analyze_fail.ir somewhere."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
    Product()(ops.ones((2, 3), mindspore.float32), ops.ones((4, 5), mindspore.float32))


if __name__ == "__main__":
    compile_it()
