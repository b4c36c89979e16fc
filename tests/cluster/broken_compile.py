"""Compiles a rank as pcl_reasoner.cluster.precompile does, with one strategy that cannot be."""

from __future__ import annotations

from typing import Any

from pcl_reasoner.cluster import mindspore_2_7, precompile

whole = mindspore_2_7.compile_in_place_of_training


def broken(done: Any) -> None:
    """Before the model is built: cut the segment means' rows in three; there are two ranks."""
    from pcl_reasoner.losses.segments import SegmentMeans

    shard = SegmentMeans.shard

    def in_three(self: Any, parallel_config: Any) -> Any:
        shard(self, parallel_config)
        self.expand.shard(((3, 1),))
        return self

    SegmentMeans.shard = in_three
    whole(done)


if __name__ == "__main__":
    mindspore_2_7.compile_in_place_of_training = broken
    precompile.main()
