"""Containment, worked by hand."""

import pytest

from pcl_reasoner.contamination.ngrams import NgramIndex, question_grams

QUESTION = "Ben has 12 books and loses 3"
"""Masked: ben has # books and loses #; its four 4-grams are written out in the module."""


def containment(question: str, problem: str, size: int = 4, mask: bool = True) -> float:
    grams = question_grams(question, size, mask)
    return NgramIndex([grams], size, mask).containments(problem, problem).get(0, 0.0)


def test_share_of_the_questions_ngrams() -> None:
    assert containment(QUESTION, "Here Ben has 7 books and sells 2") == 2 / 4


def test_numbers_count_when_they_are_not_masked() -> None:
    # Of the four only "books and loses 3" has no 12 in it.
    problem = "Ben has 7 books and loses 3"
    assert containment(QUESTION, problem) == 1.0
    assert containment(QUESTION, problem, mask=False) == 1 / 4


def test_what_stands_around_does_not_lower_the_share() -> None:
    assert containment(QUESTION, "A long preamble. " * 200 + QUESTION + " And more." * 50) == 1.0


def test_an_ngram_that_occurs_twice_counts_once() -> None:
    # a b a b a b: the distinct 2-grams are "a b" and "b a".
    assert containment("a b a b a b", "so a b it is", size=2) == 1 / 2


def test_runs_of_numbers_alone_say_nothing() -> None:
    # "of # # # #" is the question's one 5-gram with a word in it; "# # # # #" is left out.
    assert containment("of 1 2 3 4 5", "Lists: 9 8 7 6 5 4 3 2 1", size=5) == 0.0
    assert containment("of 1 2 3 4 5", "of 9 8 7 6", size=5) == 1.0


@pytest.mark.parametrize(
    ("problem", "share"),
    [("What is 2 + 3?", 1.0), ("what is $2+3$", 1.0), ("What is 2 + 4?", 0.0)]
    + [("Find x. What is 2 + 3?", 0.0)],
)
def test_a_question_shorter_than_an_ngram_must_be_the_whole_problem(
    problem: str, share: float
) -> None:
    assert containment("What is 2 + 3?", problem, size=8) == share


def test_a_short_question_is_found_in_a_wrapped_problem() -> None:
    index = NgramIndex([question_grams("What is 2 + 3?", 8, True)], 8, True)
    wrapped = "<|im_start|>user\nWhat is 2 + 3?<|im_end|>"
    assert index.containments(wrapped, "What is 2 + 3?") == {0: 1.0}
