"""Compiles a rank as pcl_reasoner.precompile.rank does, with something changed before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pcl_reasoner.cpu_ranks import mindspore_2_7
from pcl_reasoner.precompile import rank


def compile_after(change: Callable[[], None]) -> None:
    """Compile the rank of the command line; ``change`` is called before the model is built."""
    whole = mindspore_2_7.compile_in_place_of_training

    def changed(done: Any) -> None:
        change()
        whole(done)

    mindspore_2_7.compile_in_place_of_training = changed
    rank.main()
