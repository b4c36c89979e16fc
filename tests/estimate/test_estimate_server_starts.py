"""Starts of servers, by hand: bytes of the folder x servers of a host / the host's rate."""

from __future__ import annotations

import pytest

from pcl_reasoner.estimate.server_starts import Start, hours_of, lines, rows

SAMPLE = Start("r/sample", "r/sample", 40e9, 2)
JUDGE = Start("r/grade: the judge", "r/grade", 20e9, 1)
PROOF = Start("r/prove", "r/prove", 80e9, 2, is_export=True, pass_bytes=80e9)


def test_servers_of_a_host_read_at_the_same_time() -> None:
    assert SAMPLE.seconds(4e9) == 20
    assert JUDGE.seconds(2e9) == 10
    # 40 s for the servers, 20 s for the checkpoint, 240 s to compile.
    assert PROOF.seconds(4e9) == 300
    assert hours_of([SAMPLE, JUDGE, SAMPLE], "r/sample", 4e9) == pytest.approx(40 / 3600)
    assert hours_of([SAMPLE], "r/grade", 4e9) is None


def test_rows_and_lines() -> None:
    assert rows([PROOF], 4e9) == [("servers of r/prove", "80 GB", "2", "300", "0.08")]
    assert lines([], 16, 4e9) == []
    [only] = lines([SAMPLE], 16, 4e9)
    assert "4 GB/s, which is 64 GB/s of the shared folder for 16 hosts" in only
    _, exported, own = lines([SAMPLE, PROOF], 16, 4e9)
    assert "float32" in exported and "240 s of compile" in own
