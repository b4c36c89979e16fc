"""Messages between ranks: in order under a key, and every wait ends and says what it was for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcl_reasoner.cpu_ranks.messages import Mailbox


@pytest.fixture
def pair() -> Iterator[tuple[Mailbox, Mailbox]]:
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        boxes = Mailbox(0, Path(folder), limit_seconds=5), Mailbox(1, Path(folder), limit_seconds=5)
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
    second.limit_seconds = 0.2
    said = r"rank 1 waited 0\.2 s for rank 0 at AllGather; messages .* wait: \[\(0, 'other'\)\]"
    with pytest.raises(TimeoutError, match=said):
        second.take(0, "AllGather")


def test_a_rank_that_is_not_there_is_named(pair: tuple[Mailbox, Mailbox]) -> None:
    pair[0].limit_seconds = 0.1
    with pytest.raises(TimeoutError, match=r"rank 0 waited 0\.1 s for the start of rank 2"):
        pair[0].send(2, "a", b"")


def test_a_socket_of_a_killed_rank_is_replaced(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        (Path(name) / "0").touch()
        box = Mailbox(0, Path(name), limit_seconds=5)
        box.send(0, "a", b"1")
        assert box.take(0, "a") == b"1"
        box.listener.close()
