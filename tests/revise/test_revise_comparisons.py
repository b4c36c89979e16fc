"""Comparisons of answers, with the real math-verify."""

from __future__ import annotations

import pytest

from pcl_reasoner.revise.comparisons import Comparisons
from pcl_reasoner.verifiers import answers, equivalence


def test_answers_are_compared_as_the_stage_grade_compares_them() -> None:
    equal = Comparisons().equal
    assert equal("+0,008", "8") is True
    assert equal("\\frac{2}{4}", "0.5") is True
    assert equal("\\text{B}", "B") is True
    assert equal("204元", "204") is True
    assert equal("9", "8") is False
    assert equal("\\frac{2}{5}", "0.5") is False


def test_integers_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: str) -> str:
        raise AssertionError(f"math-verify was asked about {arguments}")

    monkeypatch.setattr(answers, "equivalent", fail)
    assert Comparisons().equal("008", "8") is True
    assert Comparisons().equal("7", "8") is False


def test_a_timeout_is_counted_and_not_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "TIME_OUT_SECONDS", 1.0)
    comparisons = Comparisons()
    assert comparisons.equal("9^{9^{9^{9}}}", "7.5") is None
    assert comparisons.equal("9^{9^{9^{9}}}", "7.5") is None
    assert comparisons.figures() == {"timeout": 1}
    assert comparisons.equal("\\frac{2}{4}", "0.5") is True


def test_a_dead_process_is_an_error_and_not_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    comparisons = Comparisons()
    assert comparisons.equal("\\frac14", "0.25") is True
    with monkeypatch.context() as dying:
        dying.setattr(answers, "equivalent", lambda answer, reference: "error")
        assert comparisons.equal("\\frac15", "0.2") is None
    assert comparisons.figures() == {"error": 1}
    assert comparisons.equal("\\frac16", "1/6") is True
