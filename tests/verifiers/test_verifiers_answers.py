"""Rule grading: the cases an incorrect grader gets incorrect."""

from __future__ import annotations

import threading

import pytest

from pcl_reasoner.verifiers.answers import (
    Verdict,
    after_thinking,
    grade_by_rule,
    last_boxed,
    plain_integer,
)


def verdict(answer: str, truth: str, finish_reason: str = "stop") -> Verdict:
    return grade_by_rule(f"<think>hm</think><answer>{answer}</answer>", truth, finish_reason)


def test_no_closed_think_part_earns_nothing() -> None:
    # Defect 11: cut off while thinking, right up to the right number in a box.
    cut = "<think>12-4=8, so \\boxed{8}"
    assert grade_by_rule(cut, "8", "length") == Verdict("unfinished", None)
    assert grade_by_rule(cut, "8", "stop") == Verdict("unfinished", None)
    again = "<think>a</think>wait<think>so \\boxed{8}"
    assert grade_by_rule(again, "8", "length").outcome == "unfinished"


def test_only_the_answer_after_the_last_closed_think_part_counts() -> None:
    changed = "<think>\\boxed{8}</think>\\boxed{7}"
    assert grade_by_rule(changed, "8", "stop") == Verdict("incorrect", "7")
    boxed_while_thinking = "<think>\\boxed{8}</think>It is eight."
    assert grade_by_rule(boxed_while_thinking, "8", "stop") == Verdict("no_box", None)
    assert grade_by_rule("so 8</think>\\boxed{8}", "8", "stop").outcome == "correct"


@pytest.mark.parametrize(("reason", "outcome"), [("error", "error"), ("timeout", "timeout")])
def test_a_failed_sample_is_never_correct(reason: str, outcome: str) -> None:
    found = grade_by_rule("<think></think>\\boxed{8}", "8", reason)
    assert (found.outcome, found.reward) == (outcome, 0.0)


def test_length_without_a_box_is_unfinished_but_a_whole_box_counts() -> None:
    assert verdict("the answer is \\boxed{", "8", "length").outcome == "unfinished"
    assert verdict("\\boxed{8}, since", "8", "length").outcome == "correct"
    assert verdict("\\boxed{8} or \\boxed{9", "8", "length").outcome == "unfinished"


@pytest.mark.parametrize(
    ("answer", "truth", "outcome"),
    [
        ("\\boxed{008}", "8", "correct"),
        ("\\boxed{+1,234}", "1234", "correct"),
        ("\\boxed{1{,}234}", "1234", "correct"),
        ("\\boxed{$8$}", "\\text{8}", "correct"),
        ("\\boxed{-0}", "0", "correct"),
        ("\\boxed{\u22127}", "-7", "correct"),
        ("\\boxed{7}", "-7", "incorrect"),
        ("\\boxed{80}", "8", "incorrect"),
        ("\\boxed{1,2}", "12", "incorrect"),
        ("\\boxed{8} no, \\boxed{9}", "8", "incorrect"),
        ("\\boxed{}", "8", "no_box"),
        ("eight", "8", "no_box"),
        ("\\boxed{" + "9" * 5000 + "}", "9" * 5000, "correct"),
    ],
)
def test_integers(answer: str, truth: str, outcome: str) -> None:
    assert verdict(answer, truth).outcome == outcome


@pytest.mark.parametrize(
    ("answer", "truth", "outcome"),
    [
        ("\\boxed{\\frac12}", "0.5", "correct"),
        ("\\boxed{\\frac{1}{\\sqrt{2}}}", "\\frac{\\sqrt{2}}{2}", "correct"),
        ("\\boxed{x^2+1}", "1+x^2", "correct"),
        ("\\boxed{(1,2)}", "(1, 2)", "correct"),
        ("\\boxed{(1,2)}", "(2,1)", "incorrect"),
        ("\\boxed{8.0}", "8", "correct"),
        ("\\boxed{0.51}", "\\frac12", "incorrect"),
        ("\\boxed{\\text{B}}", "B", "correct"),
    ],
)
def test_mathematics(answer: str, truth: str, outcome: str) -> None:
    assert verdict(answer, truth).outcome == outcome


def test_mathematics_is_compared_in_a_thread_too() -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(verdict("\\boxed{2/4}", "0.5").outcome))
    thread.start()
    thread.join()
    assert found == ["correct"]


def test_boxes_are_balanced() -> None:
    assert last_boxed("\\boxed{\\frac{a}{b_{c}}} end}") == "\\frac{a}{b_{c}}"
    assert last_boxed("\\boxed{\\{1, 2\\}}") == "\\{1, 2\\}"
    assert last_boxed("\\boxed{\\left\\{1\\right.}") == "\\left\\{1\\right."
    assert last_boxed("\\boxed {5}") == "5"
    assert last_boxed("\\boxed{a \\boxed{b}}") == "b"
    assert last_boxed("\\boxed{5") is None


def test_what_is_an_integer() -> None:
    assert plain_integer("000") == "0"
    assert plain_integer("1,23") is None
    assert plain_integer("12.") == "12"
    assert plain_integer("1.5") is None
    assert plain_integer("") is None


def test_after_thinking() -> None:
    assert after_thinking("<think>a</think>b<think>c</think>d") == "d"
    assert after_thinking("no thoughts") is None
