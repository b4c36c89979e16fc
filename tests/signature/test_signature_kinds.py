"""Kinds of texts, and the sentences that ask for something."""

import pytest

from pcl_reasoner.signature.kinds import asking_part, in_latin_script, kind_of


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("What is 2 + 3?", "question"),
        ("Let x = 5. Find 2x.", "question"),
        ("Numbers x and y add up to 5; determine xy.", "question"),
        ("By Vieta the sum is 6. Hence p = 36 − 10 = 26, which gives 147.", "solution"),
        ("2 + 3 是多少", "other_script"),
        ("设 $x^2+y^2=5$，求 $xy$ 的最大值 where abc", "other_script"),
        ("Сколько будет 2 + 3?", "other_script"),
        ("print(2 + 3)", "program"),
        ("import math\nx = 5", "program"),
        ("for i in range(5):\n    x += i", "program"),
        ("# 求和\nprint(2 + 3)", "program"),
        ("#include <iostream>", "program"),
    ],
)
def test_kinds(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_greek_letters_and_a_foreign_name_are_latin_script() -> None:
    assert in_latin_script(
        "Find α + β, where Чебышёв is the author of a theorem on many polynomials"
    )
    assert in_latin_script("") and in_latin_script("2 + 3 = 5")
    assert not in_latin_script("设 f(x) = sin(x) 求最大值")


def test_the_asking_part_is_the_sentences_that_ask() -> None:
    text = "Let r and s be roots of x² − 6x + 7. They are real. Find r + s."
    assert asking_part(text) == "Find r + s."
    assert asking_part("设 r 为根。求 r 的平方。") == "求 r 的平方。"
    assert asking_part("A triangle. Its sides.") == "A triangle. Its sides."
