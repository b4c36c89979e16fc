"""NumPy in the place of kernels: collectives, and operators that a CPU only approximates.

A kernel takes the attributes of its operator, its inputs and its outputs, and fills the outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from rank_messages import Mailbox

Kernel = Callable[[dict[str, str], list[np.ndarray], list[np.ndarray]], None]

REDUCTIONS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


class Collectives:
    """AllReduce, AllGather and ReduceScatter among the ranks of a group.

    Args:
        rank: Its own.
        mailbox: To the other ranks.
        groups: Ranks by group name.
    """

    def __init__(self, rank: int, mailbox: Mailbox, groups: dict[str, list[int]]) -> None:
        self.rank, self.mailbox, self.groups = rank, mailbox, groups
        self.calls: Counter[str] = Counter()

    def kernels(self) -> dict[str, Kernel]:
        """A kernel for every operator."""
        return {
            "AllReduce": self.all_reduce,
            "AllGather": self.all_gather,
            "ReduceScatter": self.reduce_scatter,
        }

    def _of_all(self, attributes: dict[str, str], own: np.ndarray) -> list[np.ndarray]:
        """What every rank of the group gave at this node, in the group's order."""
        ranks = self.groups[attributes["group"]]
        key = f"{attributes['group']} {attributes['node']} {own.dtype} {own.shape}"
        self.calls[key] += 1
        key = f"{key} call {self.calls[key]}"
        for rank in ranks:
            self.mailbox.send(rank, key, own.tobytes())
        return [
            np.frombuffer(self.mailbox.take(rank, key), own.dtype).reshape(own.shape)
            for rank in ranks
        ]

    def _reduced(self, attributes: dict[str, str], own: np.ndarray) -> np.ndarray:
        first, *others = self._of_all(attributes, own)
        reduce = REDUCTIONS[attributes["op"]]
        for other in others:
            first = reduce(first, other)
        return first

    def all_reduce(self, attributes, inputs, outputs) -> None:
        outputs[0][...] = self._reduced(attributes, inputs[0])

    def all_gather(self, attributes, inputs, outputs) -> None:
        outputs[0][...] = np.concatenate(self._of_all(attributes, inputs[0]))

    def reduce_scatter(self, attributes, inputs, outputs) -> None:
        ranks = self.groups[attributes["group"]]
        parts = np.split(self._reduced(attributes, inputs[0]), len(ranks))
        outputs[0][...] = parts[ranks.index(self.rank)]


def exp(_, inputs, outputs) -> None:
    np.exp(inputs[0], out=outputs[0])


def log(_, inputs, outputs) -> None:
    np.log(inputs[0], out=outputs[0])


def log_softmax(_, inputs, outputs) -> None:
    below = inputs[0] - inputs[0].max(-1, keepdims=True)
    outputs[0][...] = below - np.log(np.exp(below).sum(-1, keepdims=True))


def softmax(_, inputs, outputs) -> None:
    shares = np.exp(inputs[0] - inputs[0].max(-1, keepdims=True))
    outputs[0][...] = shares / shares.sum(-1, keepdims=True)


EXACT: dict[str, Kernel] = {"Exp": exp, "Log": log, "LogSoftmax": log_softmax, "Softmax": softmax}
"""In float32, over the last axis. MindSpore's own on a CPU are good to about 4e-6."""
EXACT_KERNELS = "RANKS_EXACT_KERNELS"
"""Environment variable of a rank: 1 puts these kernels in the place of MindSpore's."""
