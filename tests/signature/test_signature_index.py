"""What a text and a question have in common, by counts worked by hand."""

from __future__ import annotations

import math

import pytest

from pcl_reasoner.signature import index as index_module
from pcl_reasoner.signature.background import Background, background
from pcl_reasoner.signature.index import SignatureIndex, answer_key, in_common, signature

COUNTS = Background(
    problems=98,
    terms_per_problem=2.0,
    concepts_per_problem=2.0,
    counts={"97": 1, "12": 49, ":remainder": 9},
)
QUESTION = "Find the remainder of 12 by 97."


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> SignatureIndex:
    """One question; among 98 background problems one has 97, half have 12, nine a remainder."""
    monkeypatch.setattr(index_module, "background", lambda: COUNTS)
    return SignatureIndex([signature(QUESTION, "1/2", 7)], [7])


# (1 + 1 + 0.5) / 100, (49 + 1 + 0.5) / 100, (9 + 1 + 0.5) / 100: this question has all three too.
RARE, COMMON, REMAINDER = -math.log(0.025), -math.log(0.505), -math.log(0.105)
# A term that neither the question nor the background has: 0.5 of 100 problems.
UNKNOWN = -math.log(0.005)
CAPPED = 5.0


def test_a_rare_number_weighs_more(counted: SignatureIndex) -> None:
    found = counted.shared("97 modulo 12 is?")
    assert found.of_question["numbers"] == pytest.approx([1.0])
    assert found.nats == pytest.approx([RARE + COMMON])
    found = counted.shared("97 is?")
    assert found.of_question["numbers"] == pytest.approx([RARE / (RARE + COMMON)])
    assert (found.missing, found.extra) == (pytest.approx([COMMON]), pytest.approx([0.0]))
    assert found.of_text["numbers"] == pytest.approx([1.0])
    assert counted.shared("12 is?").missing == pytest.approx([RARE])


def test_numbers_of_the_text_alone_are_extra(counted: SignatureIndex) -> None:
    found = counted.shared("97 and 55 is?")
    assert found.extra == pytest.approx([min(UNKNOWN, CAPPED)])
    assert found.of_text["numbers"] == pytest.approx([RARE / (RARE + min(UNKNOWN, CAPPED))])


def test_a_translation_has_the_concepts(counted: SignatureIndex) -> None:
    for text in ("97与12的余数是多少", "the residue of 97 by 12", "12 % x"):
        assert counted.shared(text).concept_nats == pytest.approx([REMAINDER])
    # The question asks for a remainder, and so do two of these.
    asked = [
        counted.shared(text).of_question["asked"][0]
        for text in ("求余数。和为 5。", "余数为 5。求和。", "Find the remainder. The sum is 5.")
    ]
    assert asked == pytest.approx([1.0, 0.0, 1.0])


def test_nothing_to_find_is_neither_for_nor_against(counted: SignatureIndex) -> None:
    assert counted.shared("no such thing").of_text["numbers"] == pytest.approx([0.5])
    assert counted.shared("97").of_question["formulas"] == pytest.approx([0.5])


def test_a_text_full_of_numbers_tells_less(counted: SignatureIndex) -> None:
    # Eight numbers, four times as many as an ordinary problem has.
    found = counted.shared("1 2 3 4 5 6 7 97")
    assert found.nats == pytest.approx([-math.log(1 - (1 - 0.025) ** 4)])


def test_a_text_full_of_concepts_tells_less(counted: SignatureIndex) -> None:
    # Four concepts, twice as many as an ordinary problem has.
    found = counted.shared("the residue of the area of a triangle on a coin")
    assert found.concept_nats == pytest.approx([-math.log(1 - (1 - 0.105) ** 2)])


def test_a_number_that_no_problem_has_tells_five_nats_at_most() -> None:
    only = SignatureIndex([signature("Is 918273645 prime?")], [None])
    assert only.shared("918273645").nats == pytest.approx([5.0])
    # A contest's year is in many problems.
    assert background().count("2027") >= 0.02 * background().problems - 1


def test_a_number_in_every_question_is_no_key() -> None:
    # 3 000 of 9 300 problems have the number; without the others it would be rare.
    questions = [signature(f"4111 cats and {n} dogs") for n in range(5000, 8000)]
    alone = SignatureIndex([signature("4111 cats")], [None])
    among = SignatureIndex(questions, [None] * 3000)
    assert alone.shared("4111 mice").nats[0] == pytest.approx(5.0)
    assert among.shared("4111 mice").nats[0] < 2


def test_an_answer_is_found_by_its_value_and_tells_its_nats(counted: SignatureIndex) -> None:
    key = answer_key(" 0.50 ", 7)
    assert key == answer_key("1/2", 7) != answer_key("1/2", 8)
    assert signature(QUESTION, "1/2", 7).answer == key and signature(QUESTION, "1/2").answer is None
    # No background problem has 1/2: 0.5 / 100, but five nats at most. The terms 97, 1/2, 1 and 2
    # are twice as many as an ordinary problem has.
    expected = -math.log(1 - (1 - math.exp(-5)) ** 2)
    assert counted.shared("of 97 it is 1/2", answers=True).answered == pytest.approx([expected])
    assert counted.shared("of 97 it is 1/2").answered == [0]
    assert counted.shared("of 97 it is 1/3", answers=True).answered == [0]
    # With too little in common, the answer is not looked for.
    assert counted.shared("it is 1/2", answers=True).answered == [0]


def test_what_is_in_common_is_shown() -> None:
    shown = in_common("97与12的余数是多少", signature("Find the remainder of 12 by 97 in 5 steps."))
    assert shown == ["12", "97", ":remainder"]
