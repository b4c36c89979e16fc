"""Rule and judge compared: counts, intervals and limits by hand."""

from __future__ import annotations

import pytest

from pcl_reasoner.verifiers.answers import Verdict
from pcl_reasoner.verifiers.compared import Compared, can_read, one_sided


def compared(yes_yes: int, no_no: int, only_judge: int, only_rule: int) -> Compared:
    """Counts of: both correct, both incorrect, only the judge says correct, only the rule."""
    found = Compared()
    for count, rule, judge in (
        (yes_yes, "correct", True),
        (no_no, "incorrect", False),
        (only_judge, "incorrect", True),
        (only_rule, "correct", False),
    ):
        for place in range(count):
            answer = "8" if rule == "correct" else "9"
            found.add(f"p{place}/0", "8", Verdict(rule, answer), judge)  # type: ignore[arg-type]
    return found


def test_figures_by_hand() -> None:
    """40 + 30 of 100 agree; z² = 3.8415: (0.7 + 0.0192) / 1.0384 ± 1.96 · 0.04658 / 1.0384."""
    found = compared(40, 30, 20, 10)
    found.add("q/0", "8", Verdict("timeout", "9^{9^9}"), True)
    found.add("q/1", "8", Verdict("incorrect", "9"), None)
    figures = found.figures()
    assert figures.pop("interval") == pytest.approx([0.6042, 0.7811], abs=1e-4)
    assert figures == {
        "n": 100,
        "rule_correct_judge_correct": 40,
        "rule_correct_judge_not_correct": 10,
        "rule_not_correct_judge_correct": 20,
        "rule_not_correct_judge_not_correct": 30,
        "share": 0.7,
        "left_out": {"judge_unreadable": 1, "rule_unreadable": 1},
    }
    nothing = Compared().figures()
    assert (nothing["n"], nothing["share"], nothing["interval"]) == (0, None, None)


def test_a_fault_names_figures_and_three_pairs() -> None:
    """70 of 100 agree: up to 78.1 %, below 80 %. Of 50 that the rule rejects, 30 (60 %) agree."""
    fault = compared(40, 30, 20, 10).fault(0.8)
    assert fault is not None
    assert fault.startswith(
        "they agree on 70 of 100 responses, 70.0% (95 % interval up to 78.1%), expected at least "
        "80.0%. rule correct, judge correct: 40; rule incorrect, judge incorrect: 30; "
        "rule incorrect, judge correct: 20; rule correct, judge incorrect: 10. "
    )
    assert fault.endswith("; p2/0: rule incorrect, judge correct, answer 9, ground truth 8.")
    assert fault.count("ground truth") == 3


@pytest.mark.parametrize(
    ("counts", "least", "stops"),
    [
        # 80 of 100: the interval contains 80 %. 71 of 100: up to 79.0 %; 72: up to 79.9 %;
        # 73: up to 80.7 %.
        ((40, 40, 10, 10), 0.8, False),
        ((36, 36, 14, 14), 0.8, True),
        ((36, 37, 13, 14), 0.8, False),
        # Yes to everything, and 360 of 400 are correct: 90 % agree. Of the 40
        # that the rule rejects none does: up to z² / (40 + z²) = 8.8 %.
        ((360, 0, 40, 0), 0.8, True),
        ((0, 360, 0, 40), 0.8, True),
        ((360, 0, 40, 0), 0.05, False),
        ((0, 0, 400, 0), 0.0, False),
        # The rule misses half of what it rejects: up to 64.5 % of 40.
        ((360, 20, 20, 0), 0.8, False),
        # 5 of 10 agree: up to 76.3 %. Nine responses are too few, all wrong or not.
        ((5, 0, 5, 0), 0.8, True),
        ((0, 0, 9, 0), 0.8, False),
    ],
)
def test_which_judges_stop_a_stage(
    counts: tuple[int, int, int, int], least: float, stops: bool
) -> None:
    assert (compared(*counts).fault(least) is not None) == stops


@pytest.mark.parametrize(
    ("outcome", "answer", "truth", "expected"),
    [
        ("correct", "\\text{eight}", "eight", True),
        ("incorrect", "\\text{eight}", "8", False),
        ("incorrect", "8", "八", False),
        ("incorrect", "\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\frac{1}{2}x^2", True),
        ("incorrect", "3\\text{ cm}", "4\\text{ cm}", True),
        ("timeout", "9^{9^9}", "8", False),
        ("error", "9^{9^9}", "8", False),
    ],
)
def test_what_the_rule_can_read(outcome: str, answer: str, truth: str, expected: bool) -> None:
    assert can_read(Verdict(outcome, answer), truth) == expected  # type: ignore[arg-type]


def test_verdicts_that_are_nearly_all_the_same() -> None:
    assert one_sided(2639, 2640) == (
        "nearly all verdicts are the same: 2639 of 2640 responses that have an answer are correct "
        "(99.96%). Read some in audit.html before you train on them."
    )
    assert "100 of 100 responses that have an answer are incorrect" in (one_sided(0, 100) or "")
    assert one_sided(99, 99) is one_sided(99, 100) is one_sided(198, 200) is None
    assert one_sided(199, 200) is not None
    assert one_sided(1, 100) is one_sided(0, 0) is None
