"""Replaces number words, English and Chinese, by digits.

    "two hundred and fifty-six coins, twice"    "256 coins, 2"
    "the twelfth term is two thirds"             "the 12 term is 2/3"
    "三分之二的人有二十五枚硬币"                    "2/3的人有25枚硬币"

Words that are numbers only sometimes ("second", "a third", "half of them") are left as they are.
"""

import re

# fmt: off
_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen",
    "sixteen", "seventeen", "eighteen", "nineteen",
]
# fmt: on
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = {word: value for value, word in enumerate(_SMALL)}
_VALUES |= {word: 10 * value for value, word in enumerate(_TENS, 2)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_ONCE = {"once": 1, "twice": 2, "thrice": 3, "dozen": 12}

_WORD = "|".join([*_VALUES, *_SCALES])
_ENGLISH = re.compile(rf"\b(?:{_WORD})(?:(?:[ -]|\s+and\s+)(?:{_WORD}))*\b", re.I)
_ORDINALS = {
    word: value
    for value, word in enumerate(
        ["fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"]
        + [f"{word}th" for word in _SMALL[13:]]
        + ["twentieth"],
        4,
    )
}
_ORDINAL = re.compile(rf"\b(?:{'|'.join(_ORDINALS)})\b", re.I)
_PARTS = {"half": 2, "halves": 2, "third": 3, "quarter": 4, **_ORDINALS}
_FRACTION = re.compile(rf"\b({'|'.join(_SMALL[1:13])})[ -]({'|'.join(_PARTS)})s?\b", re.I)
_ONCE_PATTERN = re.compile(rf"\b(?:{'|'.join(_ONCE)})\b", re.I)

_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_UNITS = {"十": 10, "百": 100, "千": 1000}
_CHINESE_NUMBER = f"[{''.join([*_DIGITS, *_UNITS])}万]+"
_CHINESE_FRACTION = re.compile(f"({_CHINESE_NUMBER}|\\d+)分之({_CHINESE_NUMBER}|\\d+)")
_CHINESE = re.compile(_CHINESE_NUMBER)


def with_digits(text: str) -> str:
    """Replace number words by digits.

    Args:
        text: Any text.
    """
    text = _FRACTION.sub(lambda m: f"{_VALUES[m[1].lower()]}/{_PARTS[m[2].lower()]}", text)
    text = _ORDINAL.sub(lambda match: str(_ORDINALS[match[0].lower()]), text)
    text = _ENGLISH.sub(lambda match: _english(match[0]), text)
    text = _ONCE_PATTERN.sub(lambda match: str(_ONCE[match[0].lower()]), text)
    text = _CHINESE_FRACTION.sub(lambda m: f"{_chinese(m[2])}/{_chinese(m[1])}", text)
    return _CHINESE.sub(lambda match: str(_chinese(match[0])), text)


def _english(words: str) -> str:
    """The digits of a run of number words; words that make no single number stay apart.

    ``two hundred and six`` is 206; ``one two three`` is 1 2 3.
    """
    found: list[int] = []
    total, current, room = 0, 0, 0
    for word in re.split(r"[\s-]+", words.lower()):
        if word in _SCALES:
            scale = _SCALES[word]
            if scale == 100:
                current, room = max(current, 1) * 100, 100
            else:
                total, current, room = total + max(current, 1) * scale, 0, 1000
        elif word in _VALUES:
            value = _VALUES[word]
            if value >= room:
                if room:
                    found.append(total + current)
                total, current = 0, 0
            current += value
            room = 10 if value >= 20 else 1
    return " ".join(str(value) for value in [*found, total + current])


def _chinese(word: str) -> int:
    """The value of a Chinese numeral; digits without units are read one by one."""
    if word.isdecimal():
        return int(word)
    if not any(character in _UNITS or character == "万" for character in word):
        return int("".join(str(_DIGITS[character]) for character in word))
    total = section = digit = 0
    for character in word:
        if character == "万":
            total, section, digit = (total + section + digit) * 10_000, 0, 0
        elif character in _UNITS:
            section, digit = section + (digit or 1) * _UNITS[character], 0
        else:
            digit = _DIGITS[character]
    return total + section + digit
