"""One record of each format, and everything that can be wrong with it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa
import pytest
from curate_helpers import record

from pcl_reasoner.curate import problem_id
from pcl_reasoner.curate.batches import to_batch
from pcl_reasoner.formats.reading import read_batch, read_line, wrong_columns
from pcl_reasoner.formats.records import ReadLimits, Refused, Row, to_json


def read_one(value: dict[str, Any]) -> Row | Refused:
    return read_batch("nemotron", pa.RecordBatch.from_pylist([value]), ReadLimits())[0]


def test_a_whole_record() -> None:
    found = read_one(record("What is 6·7?", "<think>42</think>", license="cc", count=2**60))
    extra = '{"count": 1152921504606846976, "license": "cc"}'
    assert found == Row("What is 6·7?", "<think>42</think>", "42", "test", extra)


def test_messages_as_json_and_metadata_as_struct() -> None:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    metadata = {"expected_answer": "7", "problem_source": None}
    found = read_one({"messages": json.dumps(turns), "metadata": metadata})
    assert found == Row("q", "a", "7", "", "{}")


def test_system_turn_and_second_question_are_not_the_problem() -> None:
    texts = [("system", "s"), ("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b")]
    turns = [{"role": role, "content": content} for role, content in texts]
    found = read_one({"messages": turns, "metadata": '{"expected_answer": "7"}'})
    assert found == Row("q", "a", "7", "", "{}")


@pytest.mark.parametrize(
    ("written", "truth"),
    [
        ('"7"', "7"),
        ("null", ""),
        ('""', ""),
        ('" \\t\\u00a0"', ""),
        ('" 7 "', " 7 "),
        ("1.50", "1.50"),
        ("9" * 5000, "9" * 5000),
        ("[1, 2]", '["1", "2"]'),
        ('"\\u00e9"', "é"),
    ],
)
def test_expected_answer_as_text(written: str, truth: str) -> None:
    value = {**record("q"), "metadata": f'{{"expected_answer": {written}}}'}
    found = read_one(value)
    assert isinstance(found, Row)
    assert found.ground_truth == truth


def turns(*pairs: tuple[str, str | None]) -> str:
    return json.dumps([{"role": role, "content": content} for role, content in pairs])


GOOD = turns(("user", "q"), ("assistant", "a"))
ANSWER = '{"expected_answer": "7"}'


@pytest.mark.parametrize(
    ("messages", "metadata", "reason"),
    [
        (None, ANSWER, "malformed_messages"),
        ("[]", ANSWER, "malformed_messages"),
        ("not json", ANSWER, "malformed_messages"),
        ('{"role": "user"}', ANSWER, "malformed_messages"),
        ('["q", "a"]', ANSWER, "malformed_messages"),
        ("[" * 100_000, ANSWER, "malformed_messages"),
        (turns(("user", "q")), ANSWER, "malformed_messages"),
        (turns(("assistant", "a")), ANSWER, "malformed_messages"),
        (turns(("assistant", "a"), ("user", "q")), ANSWER, "malformed_messages"),
        (turns(("user", None), ("assistant", "a")), ANSWER, "malformed_problem"),
        (turns(("user", " \n"), ("assistant", "a")), ANSWER, "malformed_problem"),
        (turns(("user", "\u3000"), ("assistant", "a")), ANSWER, "malformed_problem"),
        (turns(("user", "q"), ("assistant", None)), ANSWER, "malformed_response"),
        (turns(("user", "q"), ("assistant", "")), ANSWER, "malformed_response"),
        (turns(("user", "q\ud800"), ("assistant", "a")), ANSWER, "malformed_utf8"),
        (GOOD, None, "malformed_metadata"),
        (GOOD, "", "malformed_metadata"),
        (GOOD, "{'expected_answer': '7'}", "malformed_metadata"),
        (GOOD, '["expected_answer"]', "malformed_metadata"),
        (GOOD, '{"answer": "7"}', "malformed_metadata"),
        (GOOD, '{"expected_answer": NaN}', "malformed_metadata"),
        (GOOD, '{"expected_answer": "\\udfff"}', "malformed_utf8"),
    ],
)
def test_malformed_record(messages: str | None, metadata: str | None, reason: str) -> None:
    schema = pa.schema([("messages", pa.string()), ("metadata", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"messages": messages, "metadata": metadata}], schema)
    (found,) = read_batch("nemotron", batch, ReadLimits())
    assert isinstance(found, Refused)
    assert found.reason == reason
    assert found.raw == json.dumps({"messages": messages, "metadata": metadata})


def test_bytes_that_are_not_utf8_cost_one_row_not_the_batch() -> None:
    texts = [GOOD.encode(), b'[{"role": "\xff\xfe"}]', GOOD.encode()]
    binary = pa.array(texts, pa.binary())
    messages = pa.Array.from_buffers(pa.string(), 3, binary.buffers())
    batch = pa.RecordBatch.from_arrays([messages, pa.array([ANSWER] * 3)], ["messages", "metadata"])
    first, second, third = read_batch("nemotron", batch, ReadLimits())
    assert first == third == Row("q", "a", "7", "", "{}")
    assert second == Refused("malformed_utf8", texts[1])


def test_columns_are_checked() -> None:
    text = pa.string()
    good = pa.list_(pa.struct([("role", text), ("content", text), ("tool_calls", text)]))
    schema = pa.schema([("messages", good), ("metadata", text), ("license", text)])
    assert wrong_columns(schema, "nemotron") is None
    missing = wrong_columns(pa.schema([("conversations", text), ("uuid", text)]), "nemotron")
    assert missing is not None
    assert "no column messages" in missing
    assert "no column metadata" in missing
    assert "got conversations, uuid" in missing
    for kind in (pa.int64(), pa.list_(text), pa.list_(pa.struct([("from", text)]))):
        wrong = wrong_columns(pa.schema([("messages", kind), ("metadata", text)]), "nemotron")
        assert wrong == (
            f"column messages is {kind}, expected list<struct<role, content>> or a JSON string"
        )
    bare = pa.struct([("source", text)])
    wrong = wrong_columns(pa.schema([("messages", good), ("metadata", bare)]), "nemotron")
    assert wrong is not None
    assert "expected_answer" in wrong
    double = pa.schema([("messages", good), ("metadata", text), ("metadata", text)])
    assert wrong_columns(double, "nemotron") == (
        "column metadata occurs twice, expected each name once"
    )


def line(*values: Any, **others: Any) -> bytes:
    said = [{"from": "x", "value": value} for value in values]
    return json.dumps({"conversations": said, **others}).encode() + b"\n"


def test_a_conversation() -> None:
    found = read_line("conversations", line("q", "<think>…</think>", b=1, a="é"), ReadLimits())
    assert found == Row("q", "<think>…</think>", "", "", '{"a": "é", "b": 1}')
    marked = read_line("conversations", b"\xef\xbb\xbf" + line("q", "a"), ReadLimits())
    assert marked == Row("q", "a", "", "", "{}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\n", "malformed_json"),
        (b'{"conversations": [', "malformed_json"),
        (b"[1]\n", "malformed_json"),
        (b"[" * 100_000, "malformed_json"),
        (b'{"n": ' + b"9" * 5000 + b"}", "malformed_json"),
        (b'{"conversations": "\xff"}', "malformed_utf8"),
        (line("q\ud800", "a"), "malformed_utf8"),
        (b"{}", "malformed_messages"),
        (line("q"), "malformed_messages"),
        (b'{"conversations": ["q", "a"]}', "malformed_messages"),
        (line(None, "a"), "malformed_problem"),
        (line(" ", "a"), "malformed_problem"),
        (line("q", 7), "malformed_response"),
    ],
)
def test_malformed_conversation(text: bytes, reason: str) -> None:
    assert read_line("conversations", text, ReadLimits()) == Refused(reason, text.rstrip(b"\n"))


def test_ids_are_those_of_the_rule() -> None:
    """Composed and decomposed é, and outer blanks, are one problem; case and inner ones are not."""
    problems = ["Café?", "Cafe\u0301?", " Café?\n", "café?", "Ca fé?"]
    rows = [(10**12 + i, Row(problem, "a", "", "", "{}")) for i, problem in enumerate(problems)]
    batch = to_batch("f/x.parquet", rows).to_pydict()
    expected = hashlib.sha256("Café?".encode()).hexdigest()[:16]
    assert batch["problem_id"][:3] == [expected] * 3
    assert batch["problem_id"] == [problem_id(problem) for problem in problems]
    assert len(set(batch["problem_id"])) == 3
    assert batch["problem"] == problems
    assert batch["row_id"][4] == "f/x.parquet:1000000000004"


def test_json_of_any_column() -> None:
    assert to_json({"b": float("nan"), "a": [float("inf"), 1]}) == '{"a": [null, 1], "b": null}'
    assert to_json({"bytes": b"x"}) == '{"bytes": "b\'x\'"}'
