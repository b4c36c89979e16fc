"""The strategies that ChunkedLogProbs had at first: MindSpore 2.7 makes their gradients wrong.

Each rank keeps its own part's scores, [B, S, 1], and sums over parts are AllReduces. They are kept
here so that tests see that they would notice.
"""

from __future__ import annotations

from pcl_reasoner.losses.chunked import ChunkedLogProbs


def shard_with_all_reduces(cell: ChunkedLogProbs, data_parallel: int) -> None:
    """Lay the scores of a cell, on which ``shard`` was called, over tensor-parallel ranks."""
    part, rows = (data_parallel, 1, cell.parts), (data_parallel, 1, 1)
    whole = cell.combined_scores
    cell.subtract.shard((rows, (1, 1, cell.parts)))
    for one in (cell.cast, whole.largest, whole.exp, whole.sum):
        one.shard((part,))
    for two in (cell.equal, whole.add, whole.mask, whole.minus):
        two.shard((part, part))
    for scalar in (cell.lower, cell.upper):
        scalar.shard((part, ()))
    for across in (whole.relative, whole.inside):
        across.shard((part, rows))
