"""What one rank computes: log-probs of a cut vocabulary, and the gradients.

    python one_rank.py RANK WORLD SOCKETS LIBRARY log_probs_rank.py FOLDER

FOLDER holds cases.json (a list of ``LogProbsCase``) and inputs.npz. For each case a rank writes
NAME-RANK.npz: its slices of the gradients, of log π and of the entropies.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from log_probs_cases import LogProbsCase
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import get_rank
from rank_cases import part_of_rank
from ranks_step import compute_all, gradients, use_layout
from reduced_scores import shard_with_all_reduces

from pcl_reasoner.losses.chunked import ChunkedLogProbs


class LogProbs(nn.Cell):
    """hidden + bias -> log π and entropies. The bias is 0: its gradient is that by hidden."""

    def __init__(self, case: LogProbsCase, weight: np.ndarray, hidden: np.ndarray) -> None:
        super().__init__()
        layout = SimpleNamespace(data_parallel=case.data, model_parallel=case.tensor)
        self.weight = Parameter(Tensor(weight), name="weight")
        self.bias = Parameter(Tensor(np.zeros_like(hidden)), name="bias")
        self.add = ops.Add().shard(((case.data, 1, 1), (case.data, 1, 1)))
        self.log_probs = ChunkedLogProbs(
            len(weight), case.step, parts=case.tensor if case.cut else 1, entropy=case.entropy
        ).shard(layout, hidden.shape[1])
        if case.reduced:
            shard_with_all_reduces(self.log_probs, case.data)

    def construct(self, hidden, labels, by_token):
        return self.log_probs(self.add(hidden, self.bias), self.weight, labels)


class Loss(nn.Cell):
    """Σ weight · log π."""

    def __init__(self, log_probs: nn.Cell) -> None:
        super().__init__()
        self.log_probs = log_probs

    def construct(self, hidden, labels, by_token):
        log_probs, _ = self.log_probs(hidden, labels, by_token)
        return (log_probs * by_token).sum()


def of_log_probs(case: LogProbsCase, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Its slices of log π, of the entropies where they are made, and of the gradients."""
    rows = (case.data, 1)
    use_layout(case, ((*rows, 1), rows, rows))
    names = ("hidden", "labels", "by_token")
    columns = [Tensor(part_of_rank(case, get_rank(), given[name], "data")) for name in names]
    # A Cell each: the first that is compiled cuts its weights.
    forward, backward = (LogProbs(case, given["weight"], given["hidden"]) for _ in range(2))
    log_probs, entropies = forward(*columns)
    values = {"log_probs": log_probs.asnumpy(), "entropies": entropies.asnumpy()}
    return values | gradients(Loss(backward), *columns)[1]


if __name__ == "__main__":
    compute_all(LogProbsCase, of_log_probs)
