"""JSON without the package ``json``, whose import takes half as long as the interpreter's start.

The parts written in C are the same; where an interpreter lacks them, ``json`` is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Plain:
    """What the scanner in C reads of a decoder."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float
    memo: dict[str, str] = {}


def _refuse(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} is no JSON value")


try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    _scanner: Any = make_scanner(_Plain())  # type: ignore[arg-type]
    _encoder: Any = make_encoder(
        None, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True
    )
except (ImportError, AttributeError, TypeError):
    _scanner = _encoder = None


def loads(text: bytes | str) -> Any:
    """Return the value that JSON without surrounding blanks stands for.

    Raises:
        ValueError: It is not JSON.
    """
    text = text if isinstance(text, str) else text.decode("utf-8", "surrogatepass")
    if _scanner is None:
        import json

        return json.loads(text)
    try:
        value, end = _scanner(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value


def dumps(value: Any) -> bytes:
    """Return a value as JSON in ASCII."""
    if _encoder is None:
        import json

        return json.dumps(value).encode()
    return "".join(_encoder(value, 0)).encode()
