"""Concepts of a text, in English, Chinese and programs."""

import pytest

from pcl_reasoner.signature.concepts import concepts_of


@pytest.mark.parametrize(
    "text",
    [
        "What is the area of the triangles?",
        "三角形的面积",
        "triangle areas",
    ],
)
def test_a_concept_has_one_name_in_every_language(text: str) -> None:
    assert {":area", ":triangle"} <= concepts_of(text)


@pytest.mark.parametrize(
    ("text", "concept"),
    [
        ("the sum of the cubes", ":cube"),
        ("their third powers", ":cube"),
        ("$r^{3}$", ":cube"),
        ("r³", ":cube"),
        ("r ** 3", ":cube"),
        ("relatively prime", ":gcd"),
        ("math.gcd(a, b)", ":gcd"),
        ("互质", ":gcd"),
        ("n % 7 == 0", ":divisible"),
        ("is a multiple of 7", ":divisible"),
        ("能被 7 整除", ":divisible"),
        ("two dice are rolled", ":die"),
        ("掷两枚骰子", ":die"),
        ("taking turns, in succession", ":consecutive"),
        ("相邻", ":consecutive"),
        ("no more than five", ":atmost"),
        ("不超过 5", ":atmost"),
        ("permutations(p)", ":arrange"),
        ("vertices", ":vertex"),
        ("equilateral", ":equilateral"),
    ],
)
def test_words_of_one_meaning_are_one_concept(text: str, concept: str) -> None:
    assert concept in concepts_of(text)


def test_the_longest_chinese_word_counts() -> None:
    # 三角形 has 角 in it, and 正方形 has no 方.
    assert ":angle" not in concepts_of("三角形")
    assert ":angle" in concepts_of("夹角")


def test_other_words_are_no_concepts() -> None:
    assert concepts_of("Alice visits her grandmother, who lives there.") == set()
    # A word is compared whole, in its basic forms.
    assert ":sum" not in concepts_of("summer assumptions")
