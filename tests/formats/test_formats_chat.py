"""General conversations: the first question, and its response if there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from format_helpers import MESSAGES, read_jsonl, read_parquet, refused

from pcl_reasoner.formats.records import Row

SCHEMA = pa.schema([("id", pa.string()), ("messages", MESSAGES), ("source", pa.string())])


def turn(role: str, content: str | None) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_conversations(tmp_path: Path) -> None:
    asked, answered = turn("user", "Greet Ben."), turn("assistant", "Good morning, Ben.")
    again = [turn("user", "Again."), turn("assistant", "x")]
    talks = [
        [asked],
        [turn("system", "Be kind."), asked, answered, *again],
        [asked, turn("assistant", None)],
    ]
    records = [{"id": str(i), "messages": talk, "source": "s"} for i, talk in enumerate(talks)]
    found = read_parquet("chat", records, tmp_path, SCHEMA)
    responses = ["", "Good morning, Ben.", ""]
    assert found == [
        Row("Greet Ben.", cot, "", "s", f'{{"id": "{i}"}}', "chat")
        for i, cot in enumerate(responses)
    ]
    assert all(isinstance(one, Row) and one.checked_by for one in found)


def test_sharegpt() -> None:
    value = {"conversations": [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Ho."}]}
    assert read_jsonl("chat", [value]) == [Row("Hi.", "Ho.", "", "", "{}", "chat")]


NUMBER = {"role": "assistant", "content": 7}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "malformed_messages"),
        ({"messages": []}, "malformed_messages"),
        ({"messages": ["Hi."]}, "malformed_messages"),
        ({"messages": [turn("assistant", "Hi.")]}, "malformed_messages"),
        ({"messages": [turn("user", None)]}, "malformed_problem"),
        ({"messages": [turn("user", "Hi."), NUMBER]}, "malformed_response"),
        ({"conversations": [{"from": ["human"], "value": "Hi."}]}, "malformed_messages"),
        ({"conversations": "Hi."}, "malformed_messages"),
    ],
)
def test_refusals(value: dict[str, Any], reason: str) -> None:
    assert refused(read_jsonl("chat", [value])[0])[0] == reason
