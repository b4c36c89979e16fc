"""Finds the terms of a text: its numbers, and the fragments of its formulas.

    text     "Let r, s and t be the roots of $x^3-6x^2+5x-7=0$. Find $r^3+s^3+t^3$."
    terms    6  5  7  0  x^3-6x^2+5x-7  r^3+s^3+t^3

Both are the same in every language, in LaTeX, plain text and mostly in programs. Numbers are
compared by value: 0.5, 1/2 and \\frac12 are one term.
"""

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

from pcl_reasoner.signature.numbers import with_digits

_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SPELLINGS = (
    (re.compile(r"\\(?:left|right|displaystyle|[bB]igg?[lr]?|,|;|!|quad)(?![a-z])"), " "),
    (re.compile(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"\1/\2"),
    (re.compile(r"\\[dtc]?frac\s*(\d)\s*(\d)"), r"\1/\2"),
    (re.compile(r"\\?sqrt\s*[({]?([^(){}\s]*)[)}]?"), r"√\1"),
    (re.compile(r"\\(?:cdot|times)(?![a-z])|·|×|⋅"), "*"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\\leq?(?![a-z])|<="), "≤"),
    (re.compile(r"\\geq?(?![a-z])|>="), "≥"),
    (re.compile(r"\\pi(?![a-z])"), "π"),
    (re.compile(r"[−–]"), "-"),
    (re.compile(r"(?<=\d)(?:\{,\}|,|\\,)(?=\d{3}(?!\d))"), ""),
)
_RANGE = re.compile(r"\brange\s*\((?:[^(),]*,)?\s*(\d+)\s*(?:,[^(),]*)?\)")
_SMALL_POWER = re.compile(r"\^\s*\(?[23](?!\d)")
_NUMBER = re.compile(r"\d+/\d+|\d+\.\d+|\d+")
_CALL = re.compile(r"\b(?:print|round|int|sum|len|min|max)\s*\(")
_AROUND_OPERATOR = re.compile(r"\s*([+\-*/^=<>≤≥|_])\s*")
_RUN = re.compile(r"[a-z0-9_^+\-*/=√π|≤≥<>()\[\]!.,]{3,}")
_OPERATOR = re.compile(r"[+\-/^_√]")
MAX_DIGITS = 30
"""A longer run of digits is data and no number of a question."""


def numbers_of(text: str) -> set[str]:
    """The numbers of a text, by value.

    Args:
        text: A problem, a response or a program.
    """
    return _numbers(_plain(text))


def formulas_of(text: str) -> set[str]:
    """The sides of the equations of a text.

    Args:
        text: A problem, a response or a program.
    """
    return _fragments(_plain(text))


@lru_cache(maxsize=16)
def _plain(text: str) -> str:
    """One spelling of numbers, powers, fractions, roots and signs."""
    text = _SUPERSCRIPT.sub(lambda match: "^" + match[0].translate(_RAISED), text)
    text = unicodedata.normalize("NFKC", text.replace("½", "1/2")).casefold().replace("⁄", "/")
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return with_digits(re.sub(r"[\\${}]", "", text))


def _numbers(plain: str) -> set[str]:
    # "Squared" and "cubed" are concepts: a rewrite says them in words.
    bare = _SMALL_POWER.sub(" ", plain)
    found = {number for number in _NUMBER.findall(bare) if len(number) <= MAX_DIGITS}
    numbers = {_value(number) for number in found}
    numbers |= {_value(part) for number in found if "/" in number for part in number.split("/")}
    # A program counts up to the number before the end of its range.
    ends = (end for end in _RANGE.findall(plain) if len(end) <= MAX_DIGITS)
    return numbers | {str(int(end) - 1) for end in ends}


def _value(number: str) -> str:
    """The number by its value: 0.50 and 2/4 are 1/2."""
    try:
        return str(Fraction(number))
    except ZeroDivisionError:
        return number


def number_of(text: str) -> str | None:
    """The value of a text that is one number: 1/2 for 0.50; None for any other text.

    Args:
        text: An answer, as ``204`` or ``3/4``, or a term.
    """
    plain = text.strip()
    return _value(plain) if _NUMBER.fullmatch(plain) and len(plain) <= MAX_DIGITS else None


def _fragments(plain: str) -> set[str]:
    """Sides of equations and comparisons, without brackets and signs of multiplication."""
    found = set()
    formulas = _CALL.sub(" (", plain)
    for match in _RUN.finditer(_AROUND_OPERATOR.sub(r"\1", formulas)):
        for side in re.split(r"[=≤≥<>,]", re.sub(r"[*()]", "", match[0].strip(".,()"))):
            # Without a number it is a form of answer, as m/n and m+n, that many contests share.
            if len(side) >= 3 and _OPERATOR.search(side) and re.search(r"\d", side):
                found.add(side)
    return found
