"""A pickle of one text is read without unpickling; every other pickle is refused by its opcode."""

from __future__ import annotations

import base64
import pickle
import tracemalloc
import zlib
from typing import Any

import pytest

from pcl_reasoner.formats.pickled_text import text_of_pickle, unpack
from pcl_reasoner.formats.records import Malformed

TEXTS = ["", "[]", "x" * 255, "x" * 256, "é\n\\u0041\0\x1a \U0001f600", "y" * 70_000]
RAN: list[str] = []


def run(what: str) -> None:
    RAN.append(what)


class Command:
    """What an attacker pickles: unpickling it calls a function."""

    def __reduce__(self) -> tuple[Any, ...]:
        return run, ("it ran",)


class WithState:
    def __init__(self) -> None:
        self.state = "x"


class Text(str):
    """A text by its type only: unpickling it builds an object."""


def refusal(data: bytes) -> str:
    with pytest.raises(Malformed) as caught:
        text_of_pickle(data)
    assert str(caught.value) == "malformed_tests"
    return caught.value.detail


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_text_of_every_protocol(text: str, protocol: int) -> None:
    assert text_of_pickle(pickle.dumps(text, protocol)) == text
    # The pickler in Python writes frames where the one in C leaves them out.
    assert text_of_pickle(pickle._dumps(text, protocol)) == text  # type: ignore[attr-defined]


@pytest.mark.parametrize("protocol", range(6))
def test_a_command_is_named_and_never_run(protocol: int) -> None:
    detail = refusal(pickle.dumps(Command(), protocol))
    assert "expected one text" in detail
    assert any(name in detail for name in ("GLOBAL", "SHORT_BINUNICODE", "BINUNICODE"))
    assert RAN == []
    pickle.loads(pickle.dumps(Command(), protocol))
    assert RAN.pop() == "it ran"


STRING = b"\x8c\x02[]"  # SHORT_BINUNICODE "[]"


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "opcode GLOBAL at byte 0"),
        (b"\x80\x04" + STRING + b"\x94\x8c\x02os\x94.", "opcode SHORT_BINUNICODE at byte 7"),
        (b"\x80\x04" + STRING + STRING + b"\x86.", "opcode SHORT_BINUNICODE at byte 6"),
        (b"\x80\x04" + STRING + b"\x94R.", "opcode REDUCE at byte 7"),
        (b"\x80\x04" + STRING + b"R.", "opcode REDUCE at byte 6"),
        (b"\x80\x04" + STRING + b"}b.", "opcode EMPTY_DICT at byte 6"),
        (b"\x80\x04" + STRING + b"b.", "opcode BUILD at byte 6"),
        (b"\x80\x04" + STRING + b"\x94\x94.", "opcode MEMOIZE at byte 7"),
        (b"\x80\x04" + STRING + b"\x94" + STRING + b".", "opcode SHORT_BINUNICODE at byte 7"),
        (b"\x80\x04" + STRING + b"\x94h\x00.", "opcode BINGET at byte 7"),
        (b"\x80\x04\x80\x04" + STRING + b".", "opcode PROTO at byte 2"),
        (b"\x95\x04\x00\x00\x00\x00\x00\x00\x00\x80\x04" + STRING + b".", "opcode PROTO at byte 9"),
        (b"\x80\x04.", "opcode STOP at byte 2"),
        (b"\x80\x03C\x02[].", "opcode SHORT_BINBYTES at byte 2"),
        (b"\x80\x02U\x02[].", "opcode SHORT_BINSTRING at byte 2"),
        (b"\x80\x04Pid\n.", "opcode PERSID at byte 2"),
        (b"\x80\x02\x82\x01.", "opcode EXT1 at byte 2"),
        (b"\x80\x04" + STRING + b".cos\nsystem\n(S'true'\ntR.", "bytes after STOP"),
        (b"\x80\x04\x8c\x05[].", "not a complete pickle"),
        (b"\x80\x04\x8c\x02\xff\xfe.", "not a complete pickle"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff[]", "not a complete pickle"),
        (b"\x80\x04" + STRING, "not a complete pickle"),
        (b"\x80\x04\xff", "not a complete pickle"),
        (b"", "not a complete pickle"),
    ],
    ids=range(24),
)
def test_everything_else_is_refused(data: bytes, named: str) -> None:
    assert named in refusal(data)


@pytest.mark.parametrize("value", [WithState(), Text("[]"), ["[]"], b"[]", 7, None, {"a": "[]"}])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_an_object_is_not_a_text(value: object, protocol: int) -> None:
    assert "opcode" in refusal(pickle.dumps(value, protocol))


def test_every_cut_is_refused() -> None:
    whole = pickle.dumps("[1, 2]", 4)
    for end in range(len(whole)):
        refusal(whole[:end])


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def test_the_published_form() -> None:
    text = '[{"input": "3\\n", "output": "6\\n", "testtype": "stdin"}]'
    data = pickle.dumps(text)
    assert unpack(packed(data), len(data)) == text


def test_a_bomb_stops_at_the_limit() -> None:
    """64 MiB of zeros are 65 KB of zlib; not more than the limit is ever decompressed."""
    data = pickle.dumps("0" * (64 << 20))
    assert len(packed(data)) < 100_000
    with pytest.raises(Malformed, match="tests_too_large") as caught:
        unpack(packed(data), 64 << 20)
    assert caught.value.detail == "more than 67108864 bytes after decompression"
    assert len(unpack(packed(data), len(data))) == 64 << 20


def test_a_bomb_takes_no_memory() -> None:
    text = packed(pickle.dumps("0" * (64 << 20)))
    tracemalloc.start()
    with pytest.raises(Malformed, match="tests_too_large"):
        unpack(text, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_the_last_byte_that_fits() -> None:
    data = pickle.dumps("x" * 100)
    assert unpack(packed(data), len(data)) == "x" * 100
    with pytest.raises(Malformed, match="tests_too_large"):
        unpack(packed(data), len(data) - 1)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("not base64!", "not base64"),
        ("é", "not base64"),
        ("abc", "not base64"),
        (base64.b64encode(b"not zlib").decode(), "not zlib"),
        (base64.b64encode(zlib.compress(b"x" * 999)[:-5]).decode(), "the end is missing"),
        (base64.b64encode(zlib.compress(b"x") + b"y").decode(), "other bytes follow"),
        ("", "the end is missing"),
    ],
)
def test_damaged_bytes(text: str, named: str) -> None:
    with pytest.raises(Malformed, match="malformed_tests") as caught:
        unpack(text, 1 << 20)
    assert named in caught.value.detail
