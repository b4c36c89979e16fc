"""The share of a question's signature that a text has, by counts worked by hand."""

from __future__ import annotations

import math

import pytest

from pcl_reasoner.signature import index as index_module
from pcl_reasoner.signature.background import Background, background
from pcl_reasoner.signature.index import SignatureIndex, answer_key, signature

COUNTS = Background(problems=98, terms_per_problem=2.0, counts={"97": 1, "12": 49})
QUESTION = "Find the remainder of 12 times 97."


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> SignatureIndex:
    """One question; among 98 background problems one has 97, and half have 12."""
    monkeypatch.setattr(index_module, "background", lambda: COUNTS)
    return SignatureIndex([signature(QUESTION)])


def test_a_rare_number_weighs_more(counted: SignatureIndex) -> None:
    # (1 + 1 + 0.5) / 100 and (49 + 1 + 0.5) / 100: this question has both numbers too.
    rare, common = -math.log(0.025), -math.log(0.505)
    (found,) = counted.shared("97 modulo 5 is?").values()
    assert (found.share, found.nats) == pytest.approx((rare / (rare + common), rare))
    (found,) = counted.shared("12 modulo 5 is?").values()
    assert (found.share, found.nats) == pytest.approx((common / (rare + common), common))
    (found,) = counted.shared("97与12的乘积的余数是多少").values()
    assert (found.share, found.nats) == pytest.approx((1.0, rare + common))
    assert counted.shared("14 modulo 5 is?") == {}


def test_a_text_full_of_numbers_tells_less(counted: SignatureIndex) -> None:
    # Eight numbers, four times as many as an ordinary problem has.
    (found,) = counted.shared("1 2 3 4 5 6 7 97").values()
    assert found.nats == pytest.approx(-math.log(1 - (1 - 0.025) ** 4))


def test_a_number_that_no_problem_has_tells_five_nats_at_most() -> None:
    only = SignatureIndex([signature("Is 918273645 prime?")])
    (found,) = only.shared("918273645").values()
    assert found.nats == pytest.approx(5.0)
    # A contest's year is in many problems.
    assert background().count("2027") >= 0.02 * background().problems - 1


def test_a_few_words_are_no_translation_of_a_long_question() -> None:
    numbers = "4111 and 777"
    long = SignatureIndex([signature(f"{numbers} {'words and more ' * 20}")])
    assert long.shared(numbers) == {}
    assert list(long.shared(f"{numbers}. {'此处有许多话。' * 10}")) == [0]


def test_a_number_in_every_question_is_no_key() -> None:
    # 31 of 100 questions have the number; without the others it would be rare.
    alone = SignatureIndex([signature("4111 cats")])
    among = SignatureIndex([signature(f"4111 cats and {n} dogs") for n in range(5000, 8000)])
    assert alone.nats[0] == 5.0
    assert among.shared("4111 mice, or more")[0].nats < 2


def test_an_answer_is_found_by_its_value_and_tells_its_nats(counted: SignatureIndex) -> None:
    key = answer_key(" 0.50 ", 7)
    assert key == answer_key("1/2", 7) != answer_key("1/2", 8)
    # No background problem has 1/2: five nats at most; three terms are 1.5 times an ordinary two.
    expected = -math.log(1 - (1 - math.exp(-5)) ** 1.5)
    assert counted.answer_nats("so it is 1/2", key, 7) == pytest.approx(expected)
    assert counted.answer_nats("so it is 1/2", key, 8) == 0
    assert counted.answer_nats("so it is 1/3", key, 7) == 0
    assert signature(QUESTION, "1/2", 7).answer == key and signature(QUESTION, "1/2").answer is None
