"""Majorities and what follows from them, by hand; chains and asymmetric pairs by math-verify."""

from __future__ import annotations

import pytest

from pcl_reasoner.revise.comparisons import Comparisons
from pcl_reasoner.revise.votes import Decision, Equal, Votes, count_votes, decide, settle


def relation(*pairs: str, failing: tuple[str, ...] = ()) -> Equal:
    """(answer, reference) pairs that are equivalent beside equal texts, e.g. ``"b a"``."""

    def equal(answer: str, reference: str) -> bool | None:
        pair = f"{answer} {reference}"
        return None if pair in failing else answer == reference or pair in pairs

    return equal


PLAIN = relation()


def decided(votes: Votes, original: str = "a", equal: Equal = PLAIN) -> Decision:
    return decide(votes, original, 2, 0.5, equal)


def test_classes_are_named_by_their_first_answer_in_sample_order() -> None:
    votes = count_votes(["8", None, "008", "9", "8.0", "9", "8"], Comparisons().equal)
    assert votes == Votes({"8": 4, "9": 2}, not_compared=0, responses=7)
    assert votes.answered == 6
    assert list(count_votes(["008", "8"], Comparisons().equal).classes) == ["008"]


def test_in_a_chain_only_the_first_answer_of_a_class_counts() -> None:
    """math-verify: 50% equals 0.5 and 50, but 0.5 does not equal 50."""
    equal = Comparisons().equal
    assert equal("50\\%", "0.5") and equal("50", "50\\%") and not equal("50", "0.5")
    assert count_votes(["0.5", "50\\%", "50"], equal).classes == {"0.5": 2, "50": 1}
    assert count_votes(["50\\%", "0.5", "50"], equal).classes == {"50\\%": 3}
    # 50% equals the first answers of both classes: it joins the class that is older.
    assert count_votes(["50", "0.5", "50\\%"], equal).classes == {"50": 2, "0.5": 1}


def test_the_earlier_answer_is_the_reference_of_an_asymmetric_pair() -> None:
    """math-verify: the answer (1,2) is right for the reference 2,1; the converse is not."""
    equal = Comparisons().equal
    assert count_votes(["2,1", "(1,2)"], equal).classes == {"2,1": 2}
    assert count_votes(["(1,2)", "2,1"], equal).classes == {"(1,2)": 1, "2,1": 1}


def test_the_ground_truth_is_the_reference_where_it_takes_part() -> None:
    equal = Comparisons().equal
    assert decided(Votes({"(1,2)": 2}, 0, 2), "2,1", equal) == Decision("agreed", "(1,2)")
    assert decided(Votes({"2,1": 2}, 0, 2), "(1,2)", equal) == Decision(None, "2,1")
    # The opinion is the answer, the majority and the ground truth are the references.
    assert settle("5", "2,1", "(1,2)", "keep", equal) == "revised"
    assert settle("5", "(1,2)", "2,1", "keep", equal) == "kept_disputed"
    assert settle("2,1", "5", "(1,2)", "keep", equal) == "kept_upheld"
    assert settle("(1,2)", "5", "2,1", "keep", equal) == "kept_disputed"


@pytest.mark.parametrize(
    ("classes", "responses", "expected"),
    [
        ({"a": 3, "b": 2}, 5, Decision("agreed", "a")),
        ({"b": 3, "a": 2}, 5, Decision(None, "b")),
        ({"a": 2, "b": 2}, 4, Decision("no_majority")),  # a tie for the largest
        ({"a": 1, "b": 2, "c": 2}, 5, Decision("no_majority")),
        ({"c": 1, "a": 2, "b": 1}, 4, Decision("agreed", "a")),  # a tie below the largest
        ({"a": 1}, 1, Decision("no_majority")),  # fewer than two votes
        ({"a": 2}, 4, Decision("agreed", "a")),  # exactly half have an answer
        ({"a": 2}, 5, Decision("no_majority")),
        ({}, 4, Decision("no_majority")),
        ({}, 0, Decision("no_majority")),
    ],
)
def test_majorities(classes: dict[str, int], responses: int, expected: Decision) -> None:
    assert decided(Votes(classes, 0, responses)) == expected


def test_the_limits_are_settings() -> None:
    votes = Votes({"a": 3}, 0, 20)
    assert decide(votes, "a", 3, 0.15, PLAIN) == Decision("agreed", "a")
    assert decide(votes, "a", 4, 0.15, PLAIN) == Decision("no_majority")
    assert decide(votes, "a", 3, 0.16, PLAIN) == Decision("no_majority")
    # 11 of 20 are 55 %, although 0.55 times 20 is a little more than 11 in floating point.
    assert decide(Votes({"a": 11}, 0, 20), "a", 2, 0.55, PLAIN) == Decision("agreed", "a")


def test_an_answer_that_cannot_be_compared_is_in_no_class() -> None:
    equal = relation("c b", failing=("x a", "c a"))
    # x may equal a. c may equal a, too, but certainly equals b.
    assert count_votes(["a", "x", "b", "c", "x"], equal) == Votes({"a": 1, "b": 2}, 2, 5)
    # The same text as a class's first answer needs no comparison.
    assert count_votes(["x", "a", "x"], relation(failing=("a x",))) == Votes({"x": 2}, 1, 3)


def test_answers_that_were_not_compared_can_prevent_a_majority() -> None:
    # They may all belong to the second largest class, or to one of their own.
    assert decided(Votes({"a": 4, "b": 1}, 2, 7)) == Decision("agreed", "a")
    assert decided(Votes({"a": 4, "b": 1}, 3, 8)) == Decision("not_compared")
    assert decided(Votes({"a": 2}, 1, 3)) == Decision("agreed", "a")
    assert decided(Votes({"a": 2}, 2, 4)) == Decision("not_compared")
    assert decided(Votes({"a": 1}, 1, 2)) == Decision("not_compared")
    # With too few answers nothing depends on the comparison.
    assert decided(Votes({"a": 1}, 1, 5)) == Decision("no_majority")


def test_a_failed_comparison_is_never_a_difference() -> None:
    votes = Votes({"b": 3}, 0, 3)
    assert decided(votes, "a", relation(failing=("b a",))) == Decision("not_compared", "b")
    assert settle("a", "b", "c", "drop", relation(failing=("c b",))) == "not_compared"
    assert settle("a", "b", "c", "drop", relation(failing=("c a",))) == "not_compared"
    # The comparison with the ground truth is not needed if the opinion equals the majority.
    assert settle("a", "b", "b", "drop", relation(failing=("b a",))) == "revised"


def test_what_the_third_model_decides() -> None:
    assert settle("a", "b", "c", "keep", relation("c b")) == "revised"
    assert settle("a", "b", "c", "keep", relation("c a")) == "kept_upheld"
    assert settle("a", "b", "c", "keep", relation("c a", "c b")) == "revised"
    assert settle("a", "b", "c", "keep", PLAIN) == "kept_disputed"
    assert settle("a", "b", "c", "drop", PLAIN) == "dropped_disputed"
    assert settle("a", "b", None, "keep", PLAIN) == "kept_disputed"
    assert settle("a", "b", None, "drop", PLAIN) == "dropped_disputed"
