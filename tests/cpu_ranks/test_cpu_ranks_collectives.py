"""Communication operators by hand: two or four ranks as threads, with real sockets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pcl_reasoner.cpu_ranks.collectives import Collectives
from pcl_reasoner.cpu_ranks.messages import Mailbox

OWN = {0: np.array([[1.0, 5.0], [2.0, 0.0]]), 1: np.array([[3.0, 4.0], [7.0, 1.0]])}


@pytest.fixture
def ranks() -> Iterator[list[Collectives]]:
    """Ranks 0 and 1 are stage 0, ranks 2 and 3 are stage 1."""
    groups = {"both": [0, 1], "stages": [0, 2], "all": [0, 1, 2, 3]}
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        boxes = [Mailbox(rank, Path(folder), 5) for rank in range(4)]
        yield [Collectives(box.rank, box, groups, lambda rank: rank // 2) for box in boxes]
        for box in boxes:
            box.listener.close()


def together(calls: list[Callable[[], None]]) -> None:
    """Run one call per rank at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


def run(ranks: list[Collectives], name: str, shape: tuple[int, ...], **attributes: str):
    """Run an operator on ranks 0 and 1; return what each has afterwards."""
    outputs = [np.empty(shape), np.empty(shape)]
    node = {"group": "both", "node": name, **attributes}

    def call(rank: int) -> Callable[[], None]:
        kernel = ranks[rank].kernels()[name]
        return lambda: kernel(node, [OWN[rank]], [outputs[rank]])

    together([call(0), call(1)])
    return [output.tolist() for output in outputs]


def test_reductions_by_hand(ranks: list[Collectives]) -> None:
    assert run(ranks, "AllReduce", (2, 2), op="sum") == [[[4, 9], [9, 1]]] * 2
    assert run(ranks, "AllReduce", (2, 2), op="max") == [[[3, 5], [7, 1]]] * 2
    assert run(ranks, "AllReduce", (2, 2), op="prod") == [[[3, 20], [14, 0]]] * 2
    assert run(ranks, "ReduceScatter", (1, 2), op="sum") == [[[4, 9]], [[9, 1]]]


def test_gathers_by_hand(ranks: list[Collectives]) -> None:
    assert run(ranks, "AllGather", (4, 2)) == [[[1, 5], [2, 0], [3, 4], [7, 1]]] * 2
    assert run(ranks, "Broadcast", (2, 2), root_rank="1") == [[[3, 4], [7, 1]]] * 2


def test_all_to_all_by_hand(ranks: list[Collectives]) -> None:
    """Rank r gets the r-th row of each rank, joined along the columns."""
    found = run(ranks, "AlltoAll", (1, 4), split_count="2", split_dim="0", concat_dim="1")
    assert found == [[[1, 5, 3, 4]], [[2, 0, 7, 1]]]


def test_stages_send_and_receive_under_a_tag(ranks: list[Collectives]) -> None:
    sent = {"group": "stages", "dest_rank": "1", "sr_tag": "3"}
    received = {"group": "stages", "src_rank": "0", "sr_tag": "3"}
    output = np.empty((2, 2))
    ranks[0].send(sent, [OWN[0]], [])
    ranks[2].receive(received, [], [output])
    assert output.tolist() == OWN[0].tolist()


def test_across_stages_calls_are_matched_by_order_and_within_by_name(
    ranks: list[Collectives],
) -> None:
    outputs = [np.empty(1) for _ in ranks]

    def call(rank: int) -> Callable[[], None]:
        node = {"group": "all", "node": f"name of stage {rank // 2}", "op": "sum"}
        return lambda: ranks[rank].all_reduce(node, [np.array([float(rank)])], [outputs[rank]])

    together([call(rank) for rank in range(4)])
    assert [output.tolist() for output in outputs] == [[6.0]] * 4
    ranks[0].mailbox.limit_seconds = ranks[1].mailbox.limit_seconds = 0.3

    def other_names(rank: int) -> Callable[[], None]:
        node = {"group": "both", "node": f"node {rank}", "op": "sum"}
        return lambda: ranks[rank].all_reduce(node, [OWN[rank]], [np.empty((2, 2))])

    with pytest.raises(TimeoutError, match="for rank 1 at AllReduce both node 0"):
        together([other_names(0), other_names(1)])


def test_a_barrier_waits_for_all_ranks(ranks: list[Collectives]) -> None:
    together([lambda rank=rank: rank.barrier("all") for rank in ranks])
    ranks[0].mailbox.limit_seconds = 0.2
    with pytest.raises(TimeoutError, match="rank 0 waited 0.2 s for rank 1 at Barrier"):
        ranks[0].barrier("both")
