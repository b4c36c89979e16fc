"""Python values as JSON, for the channel between a sandbox and the checker.

    [1, (2, 3), {"a": 0.5}]   <->   [1, {"t": [2, 3]}, {"d": [["a", 0.5]]}]

A JSON object always has one key, the tag of a type that JSON lacks; a list is a JSON array. A value
of a subclass is written as its base type, so that no method of the candidate decides anything.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SMALL = 1 << 53
"""Larger integers are written in base 16, because base 10 takes quadratic time."""
TEXTS = {
    ("builtins", "complex"): "c",
    ("fractions", "Fraction"): "q",
    ("decimal", "Decimal"): "m",
}
"""Module and name of a type whose values are written as text -> tag."""


class Unencodable(Exception):
    """Raised for a value that no tag expresses; the message is the name of its type."""


def encode(value: Any, other: Callable[[Any], Any] | None = None) -> Any:
    """Return a value as JSON values.

    Args:
        value: The value.
        other: Encodes values of other types; None: they are refused.

    Raises:
        Unencodable: The value's type has no tag, and ``other`` is None.
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if issubclass(kind, int):
        number = int.__index__(value)
        return number if -SMALL < number < SMALL else {"i": hex(number)}
    if issubclass(kind, float):
        real = float.__float__(value)
        return real if real - real == 0 else {"f": float.__repr__(real)}
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, (list, tuple, set, frozenset, dict)):
        return _encode_container(value, kind, other)
    if issubclass(kind, (bytes, bytearray)):
        return {"b": bytes(value).hex()}
    tag = TEXTS.get((kind.__module__, kind.__name__))
    if tag is not None:
        return {tag: str(value)}
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), other)
    if other is None:
        raise Unencodable(kind.__name__)
    return other(value)


def _encode_container(value: Any, kind: type, other: Callable[[Any], Any] | None) -> Any:
    if issubclass(kind, list):
        return [encode(item, other) for item in list.__iter__(value)]
    if issubclass(kind, tuple):
        return {"t": [encode(item, other) for item in tuple.__iter__(value)]}
    if issubclass(kind, dict):
        pairs = dict.items(value)
        return {"d": [[encode(key, other), encode(item, other)] for key, item in pairs]}
    if issubclass(kind, set):
        return {"s": [encode(item, other) for item in set.__iter__(value)]}
    return {"z": [encode(item, other) for item in frozenset.__iter__(value)]}


def decode(value: Any, other: Callable[[str, Any], Any] | None = None) -> Any:
    """Return the value that ``encode`` wrote.

    Args:
        value: JSON values.
        other: Decodes objects with other tags from tag and content; None: they are refused.

    Raises:
        ValueError: A tag is unknown, or its content is not what the tag needs.
    """
    if isinstance(value, list):
        return [decode(item, other) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError(f"an object with {len(value)} keys, expected one tag")
    ((tag, content),) = value.items()
    try:
        return _decode_tag(tag, content, other)
    except (TypeError, ArithmeticError) as error:
        raise ValueError(f"tag {tag!r}: {error}") from error


def _decode_tag(tag: str, content: Any, other: Callable[[str, Any], Any] | None) -> Any:
    if tag == "d":
        return {decode(key, other): decode(item, other) for key, item in content}
    containers = {"t": tuple, "s": set, "z": frozenset}
    if tag in containers:
        return containers[tag](decode(item, other) for item in content)
    if tag in ("q", "m"):
        return _decode_number(tag, content)
    scalars: dict[str, Callable[[Any], Any]]
    scalars = {"i": _integer, "f": float, "b": bytes.fromhex, "c": complex}
    if tag in scalars:
        return scalars[tag](content)
    if other is None:
        raise ValueError(f"the unknown tag {tag!r}")
    return other(tag, content)


def _decode_number(tag: str, text: str) -> Any:
    # Imported here, because few values need them and they take milliseconds.
    import decimal
    import fractions

    if tag == "m":
        return decimal.Decimal(text)
    # In two parts, because Fraction("1e99999999") is a number of a hundred million digits.
    numerator, _, denominator = text.partition("/")
    return fractions.Fraction(int(numerator), int(denominator or 1))


def _integer(text: str) -> int:
    return int(text, 16)
