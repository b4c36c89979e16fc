"""The live line, from the files that training writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pcl_reasoner.hosts.decide import HostState
from pcl_reasoner.hosts.view import RANK_TIMES, View, read_rank_times

HOSTS = [HostState("a", 0.0, up=True), HostState("b", 0.0, up=True), HostState("c", 0.0)]


def add(metrics: Path, *steps: int) -> None:
    with metrics.open("a") as handle:
        for step in steps:
            handle.write(json.dumps({"step": step, "loss": 2.0 / step, "tokens": 600}) + "\n")


def test_loss_pace_and_hosts(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    view = View(metrics, tmp_path, 100)
    view.look(10.0)
    assert view.note(HOSTS, 10.0) == "importing and compiling, 2 of 3 hosts"
    add(metrics, 1, 2)
    view.look(20.0)
    assert view.note(HOSTS, 20.0) == "loss 1.0000, 2 of 3 hosts"
    add(metrics, 3, 4)
    with metrics.open("a") as handle:
        handle.write('{"step": 5, "lo')
    view.look(23.0)
    # 2 steps and 1,200 tokens in 3 s.
    assert view.note(HOSTS, 23.0) == "loss 0.5000, 1.50 s a step, 400 tokens/s, 2 of 3 hosts"
    assert (view.step, view.step_at) == (4, 23.0)
    view.look(24.0)
    assert view.step_at == 23.0


def test_steps_of_an_earlier_start_are_none_of_this_one(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    add(metrics, *range(1, 8))
    view = View(metrics, tmp_path, 100)
    view.look(1.0)
    assert (view.step, view.step_at) == (7, None)
    # The trainer cuts what it makes again.
    metrics.write_text("")
    add(metrics, 1, 2, 3, 4, 5)
    view.look(2.0)
    assert (view.step, view.step_at) == (5, None)
    add(metrics, 6)
    view.look(3.0)
    assert (view.step, view.step_at) == (6, 3.0)


@pytest.mark.parametrize(("slowest", "shown"), [(1.05, False), (1.3, True)])
def test_a_slow_rank_is_shown(tmp_path: Path, slowest: float, shown: bool) -> None:
    folder = tmp_path / RANK_TIMES
    folder.mkdir(parents=True)
    for rank, seconds in enumerate((1.0, slowest, 0.9, 1.0)):
        (folder / f"rank_{rank}").write_text(f"7 {seconds} 1795287667.2\n")
    (folder / "rank_4").write_text("")
    assert read_rank_times(folder) == {0: 1.0, 1: slowest, 2: 0.9, 3: 1.0}
    note = View(tmp_path / "metrics.jsonl", tmp_path, 9).note(HOSTS, 0.0)
    assert ("rank 1 takes 1.3 x the median" in note) == shown


def test_the_last_complaint_is_shown_with_its_host(tmp_path: Path) -> None:
    hosts = [HostState("a", 0.0, complaint="[ERROR] " + "x" * 500)]
    note = View(tmp_path / "metrics.jsonl", tmp_path, 9).note(hosts, 0.0)
    assert "a: [ERROR] xxx" in note and len(note) < 200
