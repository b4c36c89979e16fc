"""What math-verify cannot finish costs its worker, not the run."""

from __future__ import annotations

from typing import Any

from pcl_reasoner.verifiers import equivalence


def test_an_endless_comparison_times_out_and_the_next_one_works() -> None:
    assert equivalence.equivalent("\\frac12", "0.5") == "correct"
    assert equivalence.equivalent("9^{9^{9^{9}}}", "7.5", seconds=1.0) == "timeout"
    assert equivalence.equivalent("\\frac12", "0.5") == "correct"


def test_a_worker_that_died_is_an_error_and_is_replaced() -> None:
    equivalence._decided.clear()
    assert equivalence.equivalent("\\frac14", "0.25") == "correct"
    process = equivalence._worker.process
    assert process is not None
    process.kill()
    process.join()
    assert equivalence.equivalent("\\frac13", "1/3") == "error"
    assert equivalence.equivalent("\\frac13", "1/3") == "correct"


def test_a_decided_pair_is_not_compared_again_and_a_timeout_is(monkeypatch: Any) -> None:
    asked = []

    class Worker:
        def compare(self, answer: str, ground_truth: str, seconds: float) -> str:
            asked.append((answer, ground_truth))
            return {"1/2": "correct", "2/1": "incorrect", "9^9": "timeout", "(": "error"}[answer]

    monkeypatch.setattr(equivalence, "_worker", Worker())
    monkeypatch.setattr(equivalence, "_decided", {})
    monkeypatch.setattr(equivalence, "_REMEMBERED", 3)
    pairs = [("1/2", "0.5"), ("2/1", "0.5"), ("1/2", "0.5"), ("2/1", "0.5"), ("1/2", "5.0")]
    said = [equivalence.equivalent(*pair) for pair in pairs]
    assert said == ["correct", "incorrect", "correct", "incorrect", "correct"]
    assert asked == [("1/2", "0.5"), ("2/1", "0.5"), ("1/2", "5.0")]
    # Not remembered: a machine that was busy once may have the time now, a worker the memory.
    again = [("9^9", "1"), ("9^9", "1"), ("(", "1"), ("(", "1")]
    assert [equivalence.equivalent(*pair) for pair in again] == ["timeout"] * 2 + ["error"] * 2
    assert asked[3:] == again
    # At the limit all are forgotten, and the newest is there.
    assert equivalence.equivalent("1/2", "2.5") == "correct"
    assert list(equivalence._decided) == [("1/2", "2.5")]
