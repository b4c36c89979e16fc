"""Compiles a rank with the layout that the loss had at first."""

from __future__ import annotations

from typing import Any

from changed_compile import compile_after
from reduced_scores import shard_with_all_reduces


def sum_over_ranks() -> None:
    """Let sums over parts of the vocabulary cross ranks again."""
    from pcl_reasoner.losses.chunked import ChunkedLogProbs

    shard = ChunkedLogProbs.shard

    def with_all_reduces(self: Any, parallel_config: Any, length: int) -> Any:
        shard(self, parallel_config, length)
        shard_with_all_reduces(self, int(parallel_config.data_parallel))
        return self

    ChunkedLogProbs.shard = with_all_reduces


if __name__ == "__main__":
    compile_after(sum_over_ranks)
