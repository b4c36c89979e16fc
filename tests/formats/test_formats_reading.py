"""The table of formats: columns that are missing, and lines that are no record."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from pcl_reasoner.formats.reading import FORMATS, read_batch, read_line, wrong_columns
from pcl_reasoner.formats.records import ReadLimits, Refused, Row

NEW = sorted(set(FORMATS) - {"nemotron", "conversations"})


@pytest.mark.parametrize("format", NEW)
def test_missing_columns_are_named_with_those_that_are_there(format: str) -> None:
    schema = pa.schema([("made_up", pa.string()), ("other", pa.int64())])
    message = wrong_columns(schema, format)
    assert message is not None
    for names, kind in FORMATS[format].columns.items():
        assert f"no column {names} ({kind})" in message
    assert message.endswith("; got made_up, other")
    first = [(names.split(" or ")[-1], pa.string()) for names in FORMATS[format].columns]
    assert wrong_columns(pa.schema(first), format) is None
    twice = wrong_columns(pa.schema([*first, first[0]]), format)
    assert twice == f"column {first[0][0]} occurs twice, expected each name once"


@pytest.mark.parametrize("format", NEW)
def test_no_value_of_a_column_stops_the_reader(format: str) -> None:
    """Every column of a record can hold anything; the record is refused with a reason."""
    names = [name for names in FORMATS[format].columns for name in names.split(" or ")]
    for value in (b"null", b"7", b"true", b'"\\u0000"', b"[7]", b"[[]]", b"[{}]", b"{}", b'"{"'):
        line = b"{" + b", ".join(b'"' + name.encode() + b'": ' + value for name in names) + b"}"
        found = read_line(format, line, ReadLimits())
        assert isinstance(found, Refused), found
        assert found.raw == line


@pytest.mark.parametrize("format", sorted(set(FORMATS) - {"nemotron"}))
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "malformed_json"),
        (b"[]", "malformed_json"),
        (b'{"a": 1, "a": 2}', "malformed_duplicate_key"),
        (b'{"a": "\xff"}', "malformed_utf8"),
        (b'{"a": NaN}', "malformed_json"),
        # Deeper than any limit of recursion that another test's library may have set.
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "malformed_json"),
    ],
    ids=range(6),
)
def test_a_line_that_is_no_record(format: str, line: bytes, reason: str) -> None:
    assert read_line(format, line, ReadLimits()) == Refused(reason, line)


@pytest.mark.parametrize("format", NEW)
@pytest.mark.parametrize("depth", [200, 500, 900, 950, 980, 990, 996])
def test_a_record_of_any_depth_is_read_or_refused(format: str, depth: int) -> None:
    start = b'{"messages": [{"role": "user", "content": "q"}], "a": '
    line = start + b"[" * depth + b"]" * depth + b"}"
    read_line(format, line, ReadLimits())


@pytest.fixture
def stack_limit() -> Iterator[Callable[[int], None]]:
    before = sys.getrecursionlimit()
    yield sys.setrecursionlimit
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("stack", [1000, 20_000])
@pytest.mark.parametrize("depth", [50, 198, 199, 400, 990, 3000])
def test_tests_of_any_depth_cost_one_row(
    depth: int, stack: int, stack_limit: Callable[[int], None]
) -> None:
    """With two levels around them; how deep Python's stack may be does not matter."""
    stack_limit(stack)
    nested = "[" * depth + '"1"' + "]" * depth
    texts = [f'{{"inputs": [{nested}], "outputs": ["1"]}}', '{"inputs": ["3"], "outputs": ["6"]}']
    batch = pa.RecordBatch.from_pydict({"question": ["p", "q"], "input_output": texts})
    deep, good = read_batch("taco", batch, ReadLimits())
    assert isinstance(good, Row)
    assert isinstance(deep, Refused) == (depth > 198)
    if isinstance(deep, Refused):
        assert deep.reason == "malformed_tests"
        assert json.loads(str(deep.raw))["question"] == "p"


def test_bytes_that_are_not_utf8_cost_one_row() -> None:
    texts = [b'["assert f(1)"]', b"\xff\xfe", b'["assert f(2)"]']
    column = pa.Array.from_buffers(pa.string(), 3, pa.array(texts, pa.binary()).buffers())
    questions = pa.array(["p", "q", "r"])
    batch = pa.RecordBatch.from_arrays([questions, column], ["question", "input_output"])
    found = read_batch("taco", batch, ReadLimits())
    reasons = [one.reason for one in found if isinstance(one, Refused)]
    assert reasons == ["malformed_tests", "malformed_utf8", "malformed_tests"]
