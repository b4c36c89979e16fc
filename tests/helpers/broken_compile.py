"""Compiles a rank with one strategy that cannot be."""

from __future__ import annotations

from typing import Any

from changed_compile import compile_after


def cut_in_three() -> None:
    """Cut the segment means' rows in three; there are two ranks."""
    from pcl_reasoner.losses.segments import SegmentMeans

    shard = SegmentMeans.shard

    def in_three(self: Any, parallel_config: Any) -> Any:
        shard(self, parallel_config)
        self.expand.shard(((3, 1),))
        return self

    SegmentMeans.shard = in_three


if __name__ == "__main__":
    compile_after(cut_in_three)
