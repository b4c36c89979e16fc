"""The task itself: correct answers, hasty ones, and distinct problems; no wording is fixed here."""

from __future__ import annotations

import random
import re

import pytest

from pcl_reasoner.synthetic import task
from pcl_reasoner.verifiers.answers import grade_by_rule, last_boxed

MADE = task.make_problems(random.Random(3), 200, [2, 3, 4, 5], set())


@pytest.mark.parametrize("item", MADE[:40])
def test_totals_follow_from_the_changes(item: task.Problem) -> None:
    assert len(item.totals) == len(item.changes) + 1
    for index, change in enumerate(item.changes):
        assert item.totals[index + 1] == item.totals[index] + change
        assert change != 0
    assert all(task.LOWEST <= total <= task.HIGHEST for total in item.totals)
    assert item.answer == str(item.totals[-1])


def test_a_whole_response_is_correct_and_a_hasty_one_is_incorrect() -> None:
    for item in MADE:
        assert grade_by_rule(item.response(), item.answer, "stop").outcome == "correct"
        assert item.response().count("</think>") == 1
        hasty = item.response(hasty=True)
        if len(item.changes) <= task.HASTY_STOP:
            assert hasty == item.response()
            continue
        assert grade_by_rule(hasty, item.answer, "stop").outcome == "incorrect"
        assert last_boxed(hasty) == str(item.totals[task.HASTY_STOP])
        assert item.response().startswith(hasty[: hasty.index("</think>")])


def test_the_question_says_all_numbers_in_words_and_which_change_is_the_last() -> None:
    for item in MADE:
        words = [task.NUMBERS[abs(number)] for number in (item.totals[0], *item.changes)]
        for text in (item.problem, item.paraphrase):
            assert [word for word in re.findall(r"\w+", text) if word in task.NUMBERS] == words
            assert text.count(" finally ") == 1
            assert f"finally {item.verbs[-1]} {words[-1]}." in text
        assert item.paraphrase != item.problem


def test_no_verb_occurs_twice_and_each_says_the_sign() -> None:
    for item in MADE:
        assert len(set(item.verbs)) == len(item.changes)
        for change, verb in zip(item.changes, item.verbs, strict=True):
            assert verb in (task.GAINS if change > 0 else task.LOSSES)


def test_problems_are_distinct_from_each_other_and_from_those_taken() -> None:
    taken: set[str] = set()
    first = task.make_problems(random.Random(0), 100, [3], taken)
    # The same stream again: everything that it draws is taken at first.
    second = task.make_problems(random.Random(0), 100, [3], taken)
    texts = [item.problem for item in first + second]
    assert len(set(texts)) == 200
    assert taken == set(texts)
    assert {len(item.changes) for item in MADE} == {2, 3, 4, 5}
