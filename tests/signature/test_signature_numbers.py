"""Number words, English and Chinese, as digits."""

import pytest

from pcl_reasoner.signature.numbers import with_digits


@pytest.mark.parametrize(
    ("words", "digits"),
    [
        ("two hundred and fifty-six coins, twice", "256 coins, 2"),
        ("Twenty-one of Ninety Nine", "21 of 99"),
        ("one thousand two hundred", "1200"),
        ("three hundred thousand", "300000"),
        ("one two three", "1 2 3"),
        ("a dozen eggs", "a 12 eggs"),
        ("someone often attends weightless nights", "someone often attends weightless nights"),
        ("三分之二的人有二十五枚硬币", "2/3的人有25枚硬币"),
        ("一百零八", "108"),
        ("两万三千", "23000"),
        ("二〇二四", "2024"),
        ("十", "10"),
        ("the twelfth of nineteen, the 2024th", "the 12 of 19, the 2024th"),
        ("two thirds of one half, and a third", "2/3 of 1/2, and a third"),
        ("Three-quarters of the sixth", "3/4 of the 6"),
    ],
)
def test_number_words_become_digits(words: str, digits: str) -> None:
    assert with_digits(words) == digits
