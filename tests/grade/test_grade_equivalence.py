"""What math-verify cannot finish costs its worker, not the run."""

from __future__ import annotations

from pcl_reasoner.grade import equivalence


def test_an_endless_comparison_times_out_and_the_next_one_works() -> None:
    assert equivalence.equivalent("\\frac12", "0.5") == "right"
    assert equivalence.equivalent("9^{9^{9^{9}}}", "7.5", seconds=1.0) == "timeout"
    assert equivalence.equivalent("\\frac12", "0.5") == "right"


def test_a_worker_that_died_is_an_error_and_is_replaced() -> None:
    assert equivalence.equivalent("\\frac12", "0.5") == "right"
    process = equivalence._worker.process
    assert process is not None
    process.kill()
    process.join()
    assert equivalence.equivalent("\\frac12", "0.5") == "error"
    assert equivalence.equivalent("\\frac12", "0.5") == "right"
