"""The queue that a rank's graph reads: a batch that was described comes next, and only once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pcl_reasoner.cpu_ranks.data_queue import DataQueue


class Three:
    """A data set of three batches."""

    def create_tuple_iterator(self, num_epochs: int, output_numpy: bool) -> Iterator[Any]:
        assert output_numpy and num_epochs == 1
        return iter([[np.full((2, step), step, np.int32)] for step in (1, 2, 3)])


def test_a_described_batch_is_the_next_one() -> None:
    queue = DataQueue(Three(), "name")
    queue.send(1)
    assert queue.get_data_info() == ([np.int32], [(2, 1)])
    assert queue.get_data_info() == ([np.int32], [(2, 1)])
    assert queue.next_batch()[0].tolist() == [[1], [1]]
    assert queue.next_batch()[0].shape == (2, 2)
    assert queue.get_data_info() == ([np.int32], [(2, 3)])
    assert queue.next_batch()[0].shape == (2, 3)
