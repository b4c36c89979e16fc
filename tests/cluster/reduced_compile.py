"""Compiles a rank as pcl_reasoner.cluster.precompile does, the loss laid out as it was at first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tensor_parallel"))

from reduced_scores import shard_with_all_reduces  # noqa: E402

from pcl_reasoner.cluster import mindspore_2_7, precompile  # noqa: E402

whole = mindspore_2_7.compile_in_place_of_training


def reduced(done: Any) -> None:
    """Before the model is built: sums over parts of the vocabulary cross ranks again."""
    from pcl_reasoner.losses.chunked import ChunkedLogProbs

    shard = ChunkedLogProbs.shard

    def with_all_reduces(self: Any, parallel_config: Any, length: int) -> Any:
        shard(self, parallel_config, length)
        shard_with_all_reduces(self, int(parallel_config.data_parallel))
        return self

    ChunkedLogProbs.shard = with_all_reduces
    whole(done)


if __name__ == "__main__":
    mindspore_2_7.compile_in_place_of_training = reduced
    precompile.main()
