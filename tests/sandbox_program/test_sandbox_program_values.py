"""Values as JSON: what goes in comes out, and nothing that is forged does harm."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from pcl_reasoner.sandbox_program.values import Unencodable, decode, encode


def there_and_back(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        -(1 << 53),
        10**4000,
        0.1,
        -0.0,
        "",
        "½\x00\ud800",
        [1, [2.5, "x"]],
        (1, (2,)),
        {1: "a", (2, 3): [4]},
        {1, 2},
        frozenset({3}),
        b"\x00\xff",
        1 + 2j,
        Fraction(-3, 4),
        Decimal("1.50"),
    ],
)
def test_a_value_is_the_same_with_its_type(value: Any) -> None:
    found = there_and_back(value)
    assert (found, type(found)) == (value, type(value))


def test_numbers_that_json_lacks() -> None:
    assert encode(float("inf")) == {"f": "inf"}
    assert there_and_back(float("-inf")) == float("-inf")
    nan = there_and_back(float("nan"))
    assert nan != nan


def test_a_subclass_is_its_base_type_whatever_its_methods_say() -> None:
    class Liar(int):
        def __eq__(self, other: object) -> bool:
            return True

        def __index__(self) -> int:
            return 6

        __hash__ = int.__hash__

    class Text(str):
        def __str__(self) -> str:
            return "6"

    class Items(list[int]):
        def __iter__(self) -> Any:
            return iter([6])

    assert encode(Liar(7)) == 7
    assert encode(Text("7")) == "7"
    assert encode(Items([7])) == [7]
    point = namedtuple("point", "x y")
    assert there_and_back(point(1, 2)) == (1, 2)
    assert there_and_back(Counter("aab")) == {"a": 2, "b": 1}
    assert there_and_back(defaultdict(int, a=1)) == {"a": 1}
    assert there_and_back(OrderedDict(a=1)) == {"a": 1}


def test_what_has_no_tag_is_refused_or_left_to_the_caller() -> None:
    with pytest.raises(Unencodable, match="^object$"):
        encode([object()])
    assert encode([len], lambda value: {"o": value.__name__}) == [{"o": "len"}]
    assert decode([{"o": 5}], lambda tag, content: (tag, content)) == [("o", 5)]


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        ({"o": 1}, "unknown tag 'o'"),
        ({}, "0 keys"),
        ({"t": [], "l": []}, "2 keys"),
        ({"i": 5}, "'i'"),
        ({"i": "xyz"}, "invalid literal"),
        ({"t": 5}, "'t'"),
        ({"d": [[[], 1]]}, "'d'"),
        ({"d": [[1]]}, "not enough values"),
        ({"b": "zz"}, "non-hexadecimal"),
        ({"q": "1/0"}, "'q'"),
        ({"q": "1e999999999"}, "invalid literal"),
        ({"m": "x"}, "'m'"),
    ],
)
def test_a_forged_value_is_an_error(forged: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(forged)
