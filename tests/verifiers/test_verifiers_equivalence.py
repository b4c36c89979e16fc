"""What math-verify cannot finish costs its worker, not the run, and not the other workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcl_reasoner.verifiers import equivalence
from pcl_reasoner.verifiers.equivalence import compare_all, equivalent

BOMB = "9^{9^{9^{9}}}"


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    equivalence._decided.clear()
    yield
    equivalence._decided.clear()


def test_an_endless_comparison_times_out_and_the_next_one_works() -> None:
    assert equivalent("\\frac12", "0.5") == "correct"
    assert equivalent(BOMB, "7.5", seconds=1.0) == "timeout"
    assert equivalent("\\frac13", "1/3") == "correct"


def test_a_pair_is_compared_once_also_one_that_took_too_long() -> None:
    assert equivalent(BOMB, "7.5", seconds=1.0) == "timeout"
    process = equivalence._pool.workers[0].process
    assert process is None  # killed, and not started again for what is known
    assert equivalent(BOMB, "7.5", seconds=1.0) == "timeout"
    assert equivalence._pool.workers[0].process is None


def test_a_worker_that_died_is_replaced_and_its_pair_is_compared_once_more() -> None:
    assert equivalent("\\frac14", "0.25") == "correct"
    process = equivalence._pool.workers[0].process
    assert process is not None
    process.kill()
    process.join()
    assert equivalent("\\frac13", "1/3") == "correct"


def test_what_kills_every_worker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is replaced by one that always dies: the pair is compared twice, not for ever."""
    assert equivalent("\\frac14", "0.25") == "correct"
    worker = equivalence._pool.workers[0]
    compared = []

    def compare(answer: str, ground_truth: str, seconds: float) -> tuple[str, bool]:
        compared.append(answer)
        return "error", False

    monkeypatch.setattr(worker, "compare", compare)
    assert equivalent("(", "1") == "error"
    assert compared == ["(", "("]


def test_all_workers_compare_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two endless comparisons on two cores take the time of one, and the others are decided."""
    monkeypatch.setattr(equivalence, "most_workers", lambda: 2)
    pairs = [(f"{BOMB}+{number}", "7") for number in range(2)]
    pairs += [(f"\\frac{{{number}}}{{2}}", str(number / 2)) for number in range(1, 40)]
    done: list[tuple[int, int]] = []
    compare_all(pairs, 2.0, lambda one, total: done.append((one, total)))
    assert len(equivalence._pool.workers) == 2
    assert done[-1] == (41, 41)
    found = [equivalence._decided[equivalence._key(pair)] for pair in pairs]
    assert found == ["timeout"] * 2 + ["correct"] * 39


def test_a_verdict_does_not_depend_on_how_busy_the_machine_is() -> None:
    """A worker that hardly gets a core has the same processor time."""
    assert equivalent("\\frac12", "0.5") == "correct"
    process = equivalence._pool.workers[0].process
    assert process is not None and process.pid
    stopped = process.pid

    os.kill(stopped, signal.SIGSTOP)
    woken = subprocess.Popen(
        [sys.executable, "-c", f"import os, time; time.sleep(3); os.kill({stopped}, 18)"]
    )
    # One second of processor time; it stands still for three.
    assert equivalent("\\frac15", "0.2", seconds=1.0) == "correct"
    woken.wait()


def test_the_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "_REMEMBERED", 3)
    compare_all([(f"{number}/2", f"{number}/2") for number in range(3)])
    assert len(equivalence._decided) == 3
    compare_all([("7/2", "3.5")])
    assert list(equivalence._decided) == [equivalence._key(("7/2", "3.5"))]


LONELY = """
import threading, time
from pcl_reasoner.verifiers.equivalence import _pool, compare_all
if __name__ == "__main__":
    work = ([("9^{9^{9^{9}}}", "7")], 2.0)
    threading.Thread(target=compare_all, args=work, daemon=True).start()
    while not (_pool.workers and _pool.workers[0].process and _pool.workers[0].process.pid):
        time.sleep(0.01)
    print(_pool.workers[0].process.pid, flush=True)
    time.sleep(600)
"""


def test_a_worker_does_not_outlive_its_parent() -> None:
    """A busy one ends when its processor time is used up."""
    words = [sys.executable, "-c", LONELY]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = Path("/proc") / parent.stdout.readline().strip()
        parent.kill()
    until = time.monotonic() + 120
    while time.monotonic() < until and worker.exists():
        time.sleep(0.1)
    assert worker.name.isdigit() and not worker.exists()
