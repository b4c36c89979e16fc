"""The task itself: right answers, hasty ones, and distinct problems; no wording is fixed here."""

from __future__ import annotations

import random

import pytest

from pcl_reasoner.embedded import task
from pcl_reasoner.grade.answers import grade_by_rule, last_boxed

MADE = task.make_problems(random.Random(3), 200, [2, 3, 4, 5], set())


@pytest.mark.parametrize("item", MADE[:40])
def test_totals_follow_from_the_changes(item: task.Problem) -> None:
    assert len(item.totals) == len(item.changes) + 1
    for index, change in enumerate(item.changes):
        assert item.totals[index + 1] == item.totals[index] + change
        assert change != 0
    assert all(task.LOWEST <= total <= task.HIGHEST for total in item.totals)
    assert item.answer == str(item.totals[-1])


def test_a_whole_response_is_right_and_a_hasty_one_is_wrong() -> None:
    for item in MADE:
        outcomes = [grade_by_rule(item.response(n), item.answer, "stop").outcome for n in (0, 1)]
        assert outcomes == ["right", "wrong"]
        assert last_boxed(item.response(1)) == str(item.totals[-2])
        assert len(item.response(1)) < len(item.response())
        assert item.response().count("</think>") == 1


def test_the_question_says_all_numbers_and_not_the_answers() -> None:
    for item in MADE:
        for text in (item.problem, item.paraphrase):
            for number in (item.totals[0], *item.changes):
                assert str(abs(number)) in text
        assert item.paraphrase != item.problem


def test_problems_are_distinct_from_each_other_and_from_those_taken() -> None:
    taken: set[str] = set()
    first = task.make_problems(random.Random(0), 100, [3], taken)
    # The same stream again: everything that it draws is taken at first.
    second = task.make_problems(random.Random(0), 100, [3], taken)
    texts = [item.problem for item in first + second]
    assert len(set(texts)) == 200
    assert taken == set(texts)
    assert {len(item.changes) for item in MADE} == {2, 3, 4, 5}
