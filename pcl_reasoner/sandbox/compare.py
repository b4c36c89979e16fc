"""Compares what a program gave with what was expected, outside the program's process.

Standard output is compared as LiveCodeBench does: line by line without the space around each line;
where a line differs, word by word as decimal numbers.

    "1.50 2\\n"   equals   "1.5  2"         "1.50 a"   differs from   "1.5 a"

Source: LiveCodeBench, lcb_runner/evaluation/testing_util.py. We differ: words are compared as
numbers only if both are plain decimal numbers; "inf" is none.
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Any

RELATIVE = 1e-6
"""Relative error that a float may have, where the expected value is a float."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")


def same_output(expected: str, found: str) -> bool:
    """Return whether two outputs of a program are the same."""
    wanted = [line.strip() for line in expected.strip().split("\n")]
    lines = [line.strip() for line in found.strip().split("\n")]
    if len(wanted) != len(lines):
        return False
    return all(
        one == other or _same_numbers(one, other) for one, other in zip(wanted, lines, strict=True)
    )


def _close(expected: float, found: float) -> bool:
    try:
        return abs(found - expected) <= RELATIVE * abs(expected)
    except OverflowError:  # an integer that no float can hold
        return False


def _same_numbers(expected: str, found: str) -> bool:
    wanted, words = expected.split(), found.split()
    if not wanted or len(wanted) != len(words):
        return False
    numbers = [(_decimal(one), _decimal(other)) for one, other in zip(wanted, words, strict=True)]
    return all(one is not None and one == other for one, other in numbers)


def _decimal(word: str) -> Decimal | None:
    if _NUMBER.fullmatch(word) is None:
        return None
    try:
        return Decimal(word)
    except InvalidOperation:
        return None


def same_value(expected: Any, found: Any) -> bool:
    """Return whether a returned value is the expected one.

    Lists and tuples are the same if their items are; a float may be off by a millionth of its size.
    Both have only Python's own types (sandbox_program/values.py).
    """
    if isinstance(expected, float) and isinstance(found, int | float):
        return found == expected or _close(expected, found)
    if isinstance(expected, list | tuple):
        if not isinstance(found, list | tuple) or len(expected) != len(found):
            return False
        return all(map(same_value, expected, found))
    if isinstance(expected, dict):
        if not isinstance(found, dict) or expected.keys() != found.keys():
            return False
        return all(same_value(value, found[key]) for key, value in expected.items())
    return bool(expected == found)
