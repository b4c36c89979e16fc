"""Messages between ranks: in order under a key, and every wait ends and says what it was for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rank_kernels import Collectives, softmax
from rank_messages import Mailbox


@pytest.fixture
def pair() -> Iterator[tuple[Mailbox, Mailbox]]:
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        boxes = Mailbox(0, Path(folder), limit_s=5), Mailbox(1, Path(folder), limit_s=5)
        yield boxes
        for box in boxes:
            box.listener.close()


def test_messages_wait_under_their_sender_and_key(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    first.send(1, "b", b"2")
    first.send(1, "a", b"1")
    first.send(1, "a", b"")
    second.send(1, "a", b"own")
    assert [second.take(0, "a"), second.take(0, "a"), second.take(0, "b")] == [b"1", b"", b"2"]
    assert second.take(1, "a") == b"own"


def test_a_wait_ends_and_says_who_waited_for_what(pair: tuple[Mailbox, Mailbox]) -> None:
    first, second = pair
    first.send(1, "other", b"1")
    first.send(1, "AllGather", b"1")
    assert second.take(0, "AllGather") == b"1"
    second.limit_s = 0.2
    said = r"rank 1 waited 0\.2 s for rank 0 at AllGather; there are: \[\(0, 'other'\)\]"
    with pytest.raises(TimeoutError, match=said):
        second.take(0, "AllGather")


def test_a_rank_that_is_not_there_is_named(pair: tuple[Mailbox, Mailbox]) -> None:
    pair[0].limit_s = 0.1
    with pytest.raises(TimeoutError, match="rank 0: rank 2 is not there"):
        pair[0].send(2, "a", b"")


def test_collectives_by_hand(pair: tuple[Mailbox, Mailbox]) -> None:
    """Rank 0 of two; what rank 1 gives to the same node is there already."""
    first, second = pair
    collectives = Collectives(0, first, {"both": [0, 1]})
    kernels = collectives.kernels()
    own, other = np.array([[1.0, 5.0], [2.0, 0.0]]), np.array([[3.0, 4.0], [7.0, 1.0]])

    def run(name: str, **attributes: str) -> list[list[float]]:
        node = {"group": "both", "node": name, **attributes}
        second.send(0, f"both {name} float64 (2, 2) call 1", other.tobytes())
        rows = {"AllGather": 4, "ReduceScatter": 1}.get(name.partition("-")[0], 2)
        output = np.empty((rows, 2))
        kernels[name.partition("-")[0]](node, [own], [output])
        return output.tolist()

    assert run("AllReduce-sum", op="sum") == [[4, 9], [9, 1]]
    assert run("AllReduce-max", op="max") == [[3, 5], [7, 1]]
    assert run("AllGather") == [[1, 5], [2, 0], [3, 4], [7, 1]]
    assert run("ReduceScatter", op="sum") == [[4, 9]]


def test_softmax_by_hand() -> None:
    shares = np.empty((1, 2), np.float32)
    softmax({}, [np.array([[0.0, np.log(3)]], np.float32)], [shares])
    np.testing.assert_allclose(shares, [[0.25, 0.75]], rtol=1e-6)
