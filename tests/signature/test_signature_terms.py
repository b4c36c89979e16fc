"""Numbers and formulas of a text: the same in every language and spelling."""

import pytest

from pcl_reasoner.signature.terms import formulas_of, numbers_of

NUMBERS = {"0", "5", "6", "7"}
FORMULAS = {"x^3-6x^2+5x-7", "r^3+s^3+t^3"}


@pytest.mark.parametrize(
    "text",
    [
        "Let r, s and t be the roots of $x^3-6x^2+5x-7=0$. Find $r^3+s^3+t^3$.",
        r"Let \(r, s, t\) be the roots of \(x^{3} - 6x^{2}+5x - 7 = 0\): find \(r^3+s^3 + t^3\)",
        "设 r, s, t 为方程 x³ − 6x² + 5x − 7 = 0 的三个根，求 r³ + s³ + t³。",
        "x**3 - 6*x**2 + 5*x - 7 == 0; print(r**3 + s**3 + t**3)",
    ],
)
def test_a_formula_is_the_same_in_every_spelling(text: str) -> None:
    assert formulas_of(text) >= FORMULAS
    # Squares and cubes are concepts.
    assert numbers_of(text) - {"3"} == NUMBERS  # 三个根: three roots


def test_numbers_are_compared_by_value() -> None:
    for text in ("0.5", "1/2", r"\frac12", r"\dfrac{1}{2}", "½", "0.50"):
        assert "1/2" in numbers_of(f"the probability {text} of")
    for text in ("1000", "1,000", "1{,}000", "one thousand"):
        assert "1000" in numbers_of(f"below {text} there")
    assert numbers_of("division by 1/0 of 7.") == {"0", "1", "7", "1/0"}


def test_the_end_of_a_range_is_the_number_before() -> None:
    assert {"100", "101"} <= numbers_of("for n in range(1, 101): pass")
    assert "99" not in numbers_of("sum of 100 terms")


def test_the_form_of_an_answer_is_no_formula() -> None:
    text = "The answer is m/n for relatively prime m and n. Find m+n."
    assert numbers_of(text) == formulas_of(text) == set()


def test_data_is_no_number() -> None:
    assert numbers_of("9" * 31) == set()
